/*
 * A quota in bytes per second, as a token bucket. The bucket holds the bytes of one second, so bytes that are not used
 * within a second are lost. A caller may take more than the bucket has. The quota is exceeded then, until time has put
 * enough bytes into the bucket that some are left. These functions never wait: a caller that finds the quota exceeded
 * tries again later. Any thread.
 */
#ifndef PB_SERVER_QUOTA_QUOTA_H
#define PB_SERVER_QUOTA_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pb_quota {
    pthread_mutex_t lock;
    int64_t bytes_per_second; /* 0: no bound */
    int64_t left_bytes;       /* in the bucket; < 0: more was taken than it had */
    int64_t filled_ns;        /* when the bucket was last filled */
} pb_quota;

void pb_quota_init(pb_quota *quota);
void pb_quota_destroy(pb_quota *quota);
void pb_quota_limit(pb_quota *quota, int64_t bytes_per_second, int64_t now_ns);
bool pb_quota_is_exceeded(pb_quota *quota, int64_t now_ns);
void pb_quota_take(pb_quota *quota, int64_t bytes, int64_t now_ns);

#endif
