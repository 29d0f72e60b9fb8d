/*
 * Kafka's protocol error codes that the layers below the wire give, by Kafka's names (Kafka protocol guide, "Error
 * Codes"). A test holds them equal to the generated table.
 */
#ifndef PB_BASE_KAFKA_ERROR_H
#define PB_BASE_KAFKA_ERROR_H

enum {
    PB_OFFSET_OUT_OF_RANGE = 1,
    PB_CORRUPT_MESSAGE = 2,
    PB_MESSAGE_TOO_LARGE = 10,
    PB_RECORD_LIST_TOO_LARGE = 18,
    PB_INVALID_TIMESTAMP = 32,
    PB_UNSUPPORTED_FOR_MESSAGE_FORMAT = 43,
    PB_OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
    PB_INVALID_PRODUCER_EPOCH = 47,
    PB_INVALID_TXN_STATE = 48,
    PB_TRANSACTION_COORDINATOR_FENCED = 52,
    PB_KAFKA_STORAGE_ERROR = 56,
    PB_UNKNOWN_PRODUCER_ID = 59,
    PB_UNSUPPORTED_COMPRESSION_TYPE = 76,
    PB_INVALID_RECORD = 87,
};

#endif
