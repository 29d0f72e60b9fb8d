"""What crash tests are made of: load with a ledger of every promise, file watching, a disk that loses power."""
