"""The command `fedsynth`: one command per task, each imported only when it is called."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import IO, Any

import click

import fedsynth

WORDS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
Words = tuple[str, ...]
SHELLS = ("bash", "zsh", "fish")


class _Wrong(click.UsageError):
    """A wrong command line, told in one line like every other error."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        click.echo(f"error: {self.format_message()}", file=file, err=True)


class _Commands(click.Group):
    """A group that names the nearest command for a typo and passes old command lines on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `fedsynth scenario=NAME ...` and `fedsynth --plan ...` as the run command."""
        if args and args[0] not in self.commands and _is_run(args[0]):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        Raises:
            click.UsageError: No command has this name.
        """
        if args and args[0] not in self.commands:
            from fedsynth.core.errors import nearest
            from fedsynth.experiment.scenario_files import scenario_files

            if args[0] in scenario_files():
                raise _Wrong(f"{args[0]} is a scenario: `fedsynth run {args[0]}` runs it.", ctx)
            near = nearest(args[0], [*self.commands, *scenario_files()])
            raise _Wrong(
                f"no command {args[0]!r}.{near} `fedsynth --help` lists them.",
                ctx,
            )
        return super().resolve_command(ctx, args)


def _is_run(word: str) -> bool:
    """True if a command line that starts with this word is one of `python -m fedsynth.run`."""
    return "=" in word or word in (
        "--plan",
        "--resume",
        "--list",
        "--quiet",
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fedsynth.__version__, "-V", "--version", package_name="fedsynth")
def app() -> None:
    """Simulate differentially private releases of several parties: the accuracy that
    they allow, and their privacy cost, computed and checked.

    \b
    fedsynth run split_mnist preset=smoke     a comparison on real MNIST, under a minute
    fedsynth plan split_mnist                 what it would cost; reads no data
    fedsynth list                             scenarios, methods, data sets, partitioners
    fedsynth help psg                         the keys of a method, or of another topic
    """


def _exit(module: str, words: Sequence[str], function: str = "main") -> None:
    """Run a command's own main function and leave with its exit code."""
    main: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    code = main(list(words))
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        # Nothing is waited for after a failure: the workers are gone, threads may not be.
        os._exit(code)


def with_scenario(words: Sequence[str]) -> list[str]:
    """`run NAME ...` as `scenario=NAME ...`."""
    if words and "=" not in words[0] and not words[0].startswith("-"):
        return [f"scenario={words[0]}", *words[1:]]
    return list(words)


def _command(name: str | None = None) -> Callable[[Callable[[Words], None]], click.Command]:
    """Make a command of a function of the words after its name; `--help` prints its docstring."""

    def decorate(function: Callable[[Words], None]) -> click.Command:
        @functools.wraps(function)
        def call(words: Words) -> None:
            if {"-h", "--help"} & set(words):
                click.echo(click.get_current_context().get_help())
            else:
                function(words)

        argument = click.argument("words", nargs=-1, type=click.UNPROCESSED)
        return app.command(name, context_settings=WORDS)(argument(call))

    return decorate


@_command()
def run(words: Words) -> None:
    """Run a scenario.

    \b
    fedsynth run NAME [KEY=VALUE ...] [--quiet]

    A comma makes a list, and lists make a grid: `fedsynth run split_mnist method=psg,dp_sgd
    epsilon=1,10 seed=0,1,2`. `fedsynth help keys` explains every key.
    """
    _exit("fedsynth.cli.run", with_scenario(words))


@_command()
def plan(words: Words) -> None:
    """Print what a run would do and cost.

    \b
    fedsynth plan NAME [KEY=VALUE ...]

    Reads no data: every party's sampling rate, steps, noise, epsilon, bytes and time.
    """
    _exit("fedsynth.cli.run", ["--plan", *with_scenario(words)])


@_command()
def resume(words: Words) -> None:
    """Continue an interrupted run.

    \b
    fedsynth resume DIR [KEY=VALUE ...]

    The result is that of an uninterrupted run. Only keys that change no result may be given.
    """
    if not words or "=" in words[0] or words[0].startswith("-"):
        raise _Wrong("name the run directory to continue: fedsynth resume DIR.")
    _exit("fedsynth.cli.run", ["--resume", words[0], *words[1:]])


@_command("list")
def list_(words: Words) -> None:
    """List scenarios, methods, data sets and partitioners.

    \b
    fedsynth list [KIND] [plugin=PATH,PATH]

    KIND shows one of them: scenarios, methods, data or partitions.
    """
    _exit("fedsynth.cli.listing", words, "print_catalogue")


@_command("help")
def help_(words: Words) -> None:
    """Explain a topic.

    \b
    fedsynth help [TOPIC] [plugin=PATH,PATH]

    TOPIC is a method, a key, run, scenario, evaluation, or keys for all of them.
    """
    if not words:
        context = click.get_current_context()
        click.echo((context.parent or context).get_help())
    else:
        _exit("fedsynth.cli.listing", words, "print_topic")


@_command()
def study(words: Words) -> None:
    """Run one scenario on several data sets.

    \b
    fedsynth study [data=NAME,NAME] [KEY=VALUE ...]

    Writes one table with the spread over draws of noise and over classifiers.
    """
    _exit("fedsynth.cli.study", words)


@_command()
def evaluate(words: Words) -> None:
    """Evaluate releases by another protocol or other classifiers.

    \b
    fedsynth evaluate RUN [protocol=P] [classifier=mlp,lenet] [stages=all] [KEY=VALUE ...]
    fedsynth evaluate RUN sets=intermediate [KEY=VALUE ...]
    fedsynth evaluate RUN real=100,1000 [KEY=VALUE ...]
    fedsynth evaluate FILE.npz data=NAME [protocol=P] [KEY=VALUE ...]

    Trains classifiers on what was released: no noise, no budget. With sets=, also on the sets that
    METHOD.intermediate=N released on the way. With real=, on so many real records, not private.
    """
    _exit("fedsynth.cli.evaluate", words)


@_command()
def reproduce(words: Words) -> None:
    """Reproduce a printed table of one of the five papers.

    \b
    fedsynth reproduce RECIPE [cells=RUN,RUN] [preset=published|reduced] [--plan]
    fedsynth reproduce --list
    """
    _exit("fedsynth.cli.reproduce", words)


@_command()
def verify(words: Words) -> None:
    """Check a release, a run or a ledger without trusting it.

    \b
    fedsynth verify RELEASE|FOLDER|EXPORT [--key HEX] [--keys FILE]
    fedsynth verify RUN [--key HEX] [--keys FILE]
    fedsynth verify LEDGER [--delta D] [--opacus] [--unit U] [--relation R]

    Checks every hash and signature and computes every epsilon again, by two accountants. Keys of
    parties that you know from elsewhere show who signed.
    """
    _exit("fedsynth.cli.verify", words)


@_command()
def export(words: Words) -> None:
    """Write a release into a folder for other programs.

    \b
    fedsynth export RELEASE --as png-folder|csv|parquet|torch|hf --out FOLDER

    RELEASE is a released file, a folder of one, a run with one job, or RUN/NAME. The folder has the
    data, a card (README.md), class names and scale (export.json), the certificate (privacy.json)
    and the release as it was certified: `fedsynth verify FOLDER` compares the data with it.
    """
    _exit("fedsynth.cli.export", words)


@_command()
def report(words: Words) -> None:
    """Write the report of a run, or an index over a folder of runs.

    \b
    fedsynth report RUN|FOLDER [--format html|md|latex|pdf] [--out FOLDER]

    Of a run, into RUN/report: its page with figures as SVG and PDF, or the same as Markdown, as
    LaTeX with booktabs tables, or as PDF, printed by an installed browser. Of a folder of runs,
    into it: an index that puts them side by side and says what differs in data, settings and
    the meaning of epsilon.
    """
    _exit("fedsynth.cli.report", words)


@_command()
def ledger(words: Words) -> None:
    """Show, check, export or close a party's ledger.

    \b
    fedsynth ledger show|verify|export|close PATH

    `show` lists the entries with what was spent up to each; `verify` checks chain, signatures and
    head and says what it cannot see; `export` writes a copy for others as JSON; `close` destroys
    the noise key, so that no earlier request can be repeated.
    """
    _exit("fedsynth.cli.ledger", words)


@_command()
def budget(words: Words) -> None:
    """Show what a party has spent.

    \b
    fedsynth budget DIR [--delta D]

    DIR is the folder of a party's party.yaml: its jobs, what they cost together and what is left of
    its lifetime budget. Or a run directory: what all its jobs together would have cost each party.
    """
    _exit("fedsynth.cli.budget", words)


@_command()
def audit(words: Words) -> None:
    """Attack a mechanism or a method and bound its epsilon from below.

    \b
    fedsynth audit method=NAME|mechanism=NAME epsilon=E [break=ERROR] [form=one_run] [runs=N]

    Prints the claimed, the audited and the theoretical value and writes them to a JSON file.
    break= makes a deliberate error, in this command only: no_noise, half_noise, no_clip,
    fixed_seed, biased_sampling, wrong_denominator or float32.
    """
    _exit("fedsynth.cli.audit", words)


@_command()
def compare(words: Words) -> None:
    """Compare runs with the published numbers.

    \b
    fedsynth compare RUN [RUN ...]

    Every line says in what our setting differs from the published one.
    """
    _exit("fedsynth.report.paper_comparison.table", words)


@_command()
def table(words: Words) -> None:
    """Print the results of runs as Markdown.

    \b
    fedsynth table RUN [RUN ...]
    """
    if not words:
        raise _Wrong("name at least one run directory: fedsynth table RUN.")
    _exit("fedsynth.cli.markdown_table", words)


@_command()
def fetch(words: Words) -> None:
    """Fetch and verify data sets, or write the template of a schema.

    \b
    fedsynth fetch NAME [NAME ...] [--data-dir DIR]
    fedsynth fetch schema FILE

    The template has the columns of a table of yours, for you to state ranges and categories; it
    says what was looked at.
    """
    if words and words[0] == "schema":
        _exit("fedsynth.cli.schema", words[1:])
    else:
        _exit("fedsynth.data.fetch.fetch", words)


@_command()
def nodes(words: Words) -> None:
    """Work with real Flower nodes.

    \b
    fedsynth nodes init FOLDER --party I --parties N KEY=VALUE ...   the folder of a party
    fedsynth nodes init FOLDER --server --host NAME                  the folder of the server
    fedsynth nodes start FOLDER                                      the node of either
    fedsynth nodes register node.pub ... --server FOLDER             admit nodes
    fedsynth nodes proposal SCENARIO KEY=VALUE ... out=RUN           what is asked of the parties
    fedsynth nodes run RUN --server FOLDER | --nodes FOLDER          submit; or all on this machine
    fedsynth nodes status RUN                                        which parties answered
    fedsynth nodes report RUN                                        evaluate, report

    KEY=VALUE of `init` are those of party.yaml, of `proposal` those of a run. `init` without
    --party and --server writes the folders of all, for a rehearsal on this machine. `app`, `config`
    and `rehearse` are the parts for those who call Flower themselves.
    """
    _exit("fedsynth.cli.nodes", words)


@app.command()
@click.argument("shell", default="")
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    `eval "$(fedsynth completion bash)"` uses it.
    """
    from click.shell_completion import get_completion_class

    from fedsynth.core.errors import unknown

    if shell not in SHELLS:
        raise _Wrong(str(unknown("shell", shell, SHELLS)))
    script = get_completion_class(shell)
    if script is None:
        raise _Wrong(f"there is no completion for {shell}.")
    click.echo(script(app, {}, "fedsynth", "_FEDSYNTH_COMPLETE").source())


def entry() -> None:
    """The console command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app.main(prog_name="fedsynth", complete_var="_FEDSYNTH_COMPLETE")
    except BrokenPipeError:  # the reader has closed, as in `fedsynth list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
