/* The queue towards Python: nothing waits without a doorbell, and floods of notices are folded. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/events.h"
#include "tests/check.h"

enum { PRODUCERS = 2, EVENTS = 30000 };

static pb_events events;

static void *put_many(void *argument)
{
    (void)argument;
    for (int i = 0; i < EVENTS; i++) {
        pb_event_node *node = calloc(1, sizeof *node);
        CHECK(node != NULL);
        node->kind = PB_NODE_APPENDED;
        node->ticket = (uint64_t)i;
        pb_events_put(&events, node);
    }
    return NULL;
}

TEST(no_event_waits_without_a_doorbell)
{
    pthread_t threads[PRODUCERS];
    CHECK_INT(pb_events_init(&events), 0);
    for (int i = 0; i < PRODUCERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, put_many, NULL), 0);
    for (int got = 0; got < PRODUCERS * EVENTS;) {
        struct pollfd ready = {.fd = events.event_fd, .events = POLLIN};
        CHECK_INT(poll(&ready, 1, 10000), 1);
        pb_event_node *node = pb_events_next(&events); /* the smallest batch there is */
        got += node != NULL;
        free(node);
    }
    for (int i = 0; i < PRODUCERS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    pb_events_destroy(&events);
}

static pb_notice *next_notice(void)
{
    pb_event_node *node = pb_events_next(&events);
    if (node == NULL)
        return NULL;
    CHECK_INT(node->kind, PB_NODE_NOTICE);
    pb_notice *notice = PB_CONTAINER(node, pb_notice, event);
    pb_events_claim_notice(&events, notice);
    return notice;
}

TEST(the_same_complaint_is_told_once_with_a_count)
{
    CHECK_INT(pb_events_init(&events), 0);
    for (int i = 0; i < 1000; i++)
        pb_events_notice(&events, "bad %s", "client");
    pb_notice *notice = next_notice();
    CHECK_STR(notice->text, "bad client");
    CHECK_INT(notice->repeated, 999);
    pb_events_notice(&events, "bad %s", "client"); /* the first one is Python's now */
    CHECK_INT(notice->repeated, 999);
    pb_notice_free(notice);
    notice = next_notice();
    CHECK_INT(notice->repeated, 0);
    pb_notice_free(notice);
    CHECK(next_notice() == NULL);
    pb_events_destroy(&events);
}

TEST(a_flood_of_different_complaints_is_bounded)
{
    CHECK_INT(pb_events_init(&events), 0);
    for (int i = 0; i < 10000; i++)
        pb_events_notice(&events, "bad client %d", i);
    int count = 0;
    int64_t told = 0;
    for (pb_notice *notice; (notice = next_notice()) != NULL; count++) {
        told += 1 + notice->repeated;
        pb_notice_free(notice);
    }
    CHECK(count <= PB_NOTICES_MAX);
    CHECK_INT(told, 10000);
    pb_events_destroy(&events);
}

TEST(a_flood_by_one_peer_hides_neither_other_peers_nor_other_kinds)
{
    CHECK_INT(pb_events_init(&events), 0);
    for (int i = 0; i < 10000; i++)
        pb_events_notice_peer(&events, "10.0.0.1", "request %d is malformed", i);
    pb_events_notice_peer(&events, "10.0.0.2", "request %d is malformed", 1);
    pb_events_notice_peer(&events, "10.0.0.1", "no memory");
    for (int i = 0; i < 10000; i++)
        pb_events_notice(&events, "partition %d begins a segment", i);
    pb_events_notice(&events, "the disk is full");
    pb_events_tell_peer(&events, PB_ABOUT_THROTTLE, "10.0.0.1", "it has to wait");
    int count = 0;
    int of_flooder = 0;
    int64_t told = 0;
    bool others[4] = {false};
    for (pb_notice *notice; (notice = next_notice()) != NULL; count++) {
        told += 1 + notice->repeated;
        bool malformed = strstr(notice->text, "is malformed") != NULL;
        of_flooder += malformed && strcmp(notice->peer, "10.0.0.1") == 0;
        others[0] |= malformed && strcmp(notice->peer, "10.0.0.2") == 0;
        others[1] |= strcmp(notice->text, "no memory") == 0;
        others[2] |= strcmp(notice->text, "the disk is full") == 0 && notice->peer[0] == '\0';
        others[3] |= strcmp(notice->text, "it has to wait") == 0 && notice->event.error == PB_ABOUT_THROTTLE;
        pb_notice_free(notice);
    }
    CHECK_INT(of_flooder, PB_NOTICES_OF_PEER_MAX);
    CHECK(others[0] && others[1] && others[2] && others[3]);
    CHECK(count <= PB_NOTICES_MAX + 2);
    CHECK_INT(told, 20004);
    CHECK_INT(events.notice_count, 0);
    CHECK(events.newest == NULL);
    pb_events_destroy(&events);
}

TEST(kinds_are_told_apart_whatever_they_are_about)
{
    CHECK_INT(pb_events_init(&events), 0);
    pb_events_notice_peer(&events, "10.0.0.1", "bad %s", "client");
    pb_events_notice_peer(&events, "10.0.0.2", "bad %s", "client");
    pb_notice *first = next_notice();
    pb_notice *second = next_notice();
    CHECK(first != NULL && second != NULL && next_notice() == NULL);
    CHECK(first->kind == second->kind);
    pb_notice_free(first);
    pb_notice_free(second);
    pb_events_destroy(&events);
}

CHECK_MAIN()
