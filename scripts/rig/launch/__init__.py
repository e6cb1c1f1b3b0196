"""Start a private Ray cluster and the OpenAI server on it, and stop both without a trace."""
