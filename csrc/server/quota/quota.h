/*
 * Bytes per second that something may take: what is not taken in a second is lost, what is taken too much is waited
 * for. Nobody sleeps here; who finds the quota exceeded comes again. Any thread.
 */
#ifndef PB_SERVER_QUOTA_QUOTA_H
#define PB_SERVER_QUOTA_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pb_quota {
    pthread_mutex_t lock;
    int64_t bytes_per_second; /* 0: no bound */
    int64_t left_bytes;       /* < 0: taken too much */
    int64_t filled_ns;
} pb_quota;

void pb_quota_init(pb_quota *quota);
void pb_quota_destroy(pb_quota *quota);
void pb_quota_limit(pb_quota *quota, int64_t bytes_per_second, int64_t now_ns);
bool pb_quota_is_exceeded(pb_quota *quota, int64_t now_ns);
void pb_quota_take(pb_quota *quota, int64_t bytes, int64_t now_ns);

#endif
