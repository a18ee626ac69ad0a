"""Signed key-agreement keys: a server that replaces a party's keys by its own is found.

Each party signs the keys that it made for a session with its party key (`privacy.party_key`).
Parties that know each other's public party keys, from their own configuration and never from a
message, refuse keys without a valid signature. The signature names session, question and party, so
that keys of another session or party do not pass for these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsynth.privacy.party_key import PartyKey, verify
from fedsynth.privacy.secagg.masking import Keys, OutOfTurn

_SUBJECT = b"fedsynth secure sum keys\n"


@dataclass(frozen=True)
class Certification:
    """A party's signing key, and the public keys of the other parties.

    Attributes:
        key: The key of this party.
        peers: The public keys of other parties in hexadecimal; empty: unknown, and no key of a
            neighbour is checked.
    """

    key: PartyKey
    peers: Mapping[int, str] = field(default_factory=dict)

    def sign(self, session: str, question: str, party: int, keys: Keys) -> bytes:
        """The signature of this party's keys for a session."""
        return bytes.fromhex(self.key.sign(_statement(session, question, party, keys)))

    def check(
        self,
        session: str,
        question: str,
        public: Mapping[int, Keys],
        signatures: Mapping[int, bytes],
        own: int,
    ) -> None:
        """Check the keys of all neighbours; nothing is checked if no peer is known.

        Args:
            session: The session of the sum.
            question: The digest of the request whose answers are added up.
            public: The keys by party.
            signatures: Their signatures by party.
            own: This party, whose keys are compared elsewhere.

        Raises:
            OutOfTurn: A neighbour is unknown, or its party key did not sign these keys.
        """
        if not self.peers:
            return
        for party, keys in public.items():
            if party == own:
                continue
            statement = _statement(session, question, party, keys)
            signature = signatures.get(party, b"").hex()
            if party not in self.peers or not verify(self.peers[party], statement, signature):
                raise OutOfTurn(f"the keys of party {party} are not signed by its party key")


def _statement(session: str, question: str, party: int, keys: Keys) -> bytes:
    fields = [session, question, party, *(key.hex() for key in keys)]
    return _SUBJECT + json.dumps(fields).encode()
