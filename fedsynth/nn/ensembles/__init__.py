"""Many small networks trained side by side, one batched product per layer."""
