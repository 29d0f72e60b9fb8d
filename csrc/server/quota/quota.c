/* A bucket that fills with time and holds what a second brings. */
#include "server/quota/quota.h"

#define SECOND_NS 1000000000LL

void pb_quota_init(pb_quota *quota)
{
    *quota = (pb_quota){.bytes_per_second = 0};
    pthread_mutex_init(&quota->lock, NULL);
}

void pb_quota_destroy(pb_quota *quota)
{
    pthread_mutex_destroy(&quota->lock);
}

void pb_quota_limit(pb_quota *quota, int64_t bytes_per_second, int64_t now_ns)
{
    pthread_mutex_lock(&quota->lock);
    quota->bytes_per_second = bytes_per_second;
    quota->left_bytes = bytes_per_second;
    quota->filled_ns = now_ns;
    pthread_mutex_unlock(&quota->lock);
}

/* Add what has come since the last time, once it is at least a byte. The lock is held. */
static void fill(pb_quota *quota, int64_t now_ns)
{
    int64_t passed_ns = now_ns > quota->filled_ns ? now_ns - quota->filled_ns : 0;
    __int128 come_bytes = (__int128)quota->bytes_per_second * passed_ns / SECOND_NS;
    if (come_bytes == 0)
        return;
    __int128 left_bytes = quota->left_bytes + come_bytes;
    quota->left_bytes = left_bytes < quota->bytes_per_second ? (int64_t)left_bytes : quota->bytes_per_second;
    quota->filled_ns = now_ns;
}

bool pb_quota_is_exceeded(pb_quota *quota, int64_t now_ns)
{
    pthread_mutex_lock(&quota->lock);
    bool is_exceeded = false;
    if (quota->bytes_per_second > 0) {
        fill(quota, now_ns);
        is_exceeded = quota->left_bytes <= 0;
    }
    pthread_mutex_unlock(&quota->lock);
    return is_exceeded;
}

void pb_quota_take(pb_quota *quota, int64_t bytes, int64_t now_ns)
{
    pthread_mutex_lock(&quota->lock);
    if (quota->bytes_per_second > 0) {
        fill(quota, now_ns);
        quota->left_bytes -= bytes;
    }
    pthread_mutex_unlock(&quota->lock);
}
