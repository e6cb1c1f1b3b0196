"""The options that an installed `vllm serve` takes, known without starting it."""
