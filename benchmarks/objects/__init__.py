"""An object store for benchmarks: a real S3 server behind a proxy that delays and counts, in a process of its own."""
