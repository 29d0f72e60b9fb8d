"""APIs about settings: of topics and brokers, and quotas and credentials of clients."""
