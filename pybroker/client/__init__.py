"""A small blocking client of brokers, ours or Apache Kafka's: what the commands ask and order. No records pass here."""
