/* Making clients wait that are over their quota. See the header. */
#include "server/quota/throttle.h"

#define CLIENT_ID_TOLD_BYTES 64
#define TOLD_EVERY_NS 10000000000LL
#define MS_NS 1000000LL

static void tell(pb_request *request, const char *quota, int32_t wait_ms)
{
    pb_server_reactor *home = request->home;
    pb_broker *broker = home->broker;
    int64_t told_ns = atomic_load_explicit(&broker->quota_told_ns, memory_order_relaxed);
    if (told_ns != 0 && home->reactor.now_ns - told_ns < TOLD_EVERY_NS)
        return;
    atomic_store_explicit(&broker->quota_told_ns, home->reactor.now_ns, memory_order_relaxed);
    pb_slice client = request->header.client_id;
    int length = client.length < 0 ? 0 : client.length < CLIENT_ID_TOLD_BYTES ? client.length : CLIENT_ID_TOLD_BYTES;
    pb_events_tell_peer(&broker->events, PB_ABOUT_THROTTLE, request->connection->host,
                        "client '%.*s' at %s has to wait %d ms: it is over its quota %s", length,
                        length > 0 ? (const char *)client.data : "", request->connection->host, wait_ms, quota);
}

static int32_t take(pb_request *request, enum pb_quota_kind kind, int64_t bytes)
{
    static const char *const names[] = {
        [PB_QUOTA_PRODUCE] = "producer_byte_rate", [PB_QUOTA_FETCH] = "consumer_byte_rate"};
    pb_reactor *reactor = &request->home->reactor;
    int32_t wait_ms = pb_client_quotas_take(&request->home->broker->client_quotas, kind, request->header.client_id,
                                            bytes, reactor->now_ns / MS_NS);
    if (wait_ms > 0) {
        pb_connection_mute(request->connection, reactor->now_ns + wait_ms * MS_NS);
        pb_counter_add(&request->home->counters.quota_throttled, 1);
        tell(request, names[kind], wait_ms);
    }
    return wait_ms;
}

int32_t pb_throttle_produce(pb_request *request)
{
    return take(request, PB_QUOTA_PRODUCE, request->body_length);
}

int32_t pb_throttle_fetch(pb_request *request, int64_t bytes)
{
    return take(request, PB_QUOTA_FETCH, bytes);
}
