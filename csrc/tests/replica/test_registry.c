/* The registry against a plain table of what should be in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replica/registry.h"
#include "tests/check.h"

enum { TOPICS = 150, INDEXES = 3, STEPS = 20000 };

static pb_registry registry;
static bool present[TOPICS][INDEXES];

static void fill_id(uint8_t id[16], int topic)
{
    memset(id, 0, 16);
    memcpy(id, &topic, sizeof topic);
    id[15] = 1;
}

/* Only what the registry looks at: there is no log behind it. */
static pb_partition *make(int topic, int index)
{
    pb_partition *partition = calloc(1, sizeof *partition);
    CHECK(partition != NULL);
    snprintf(partition->topic, sizeof partition->topic, "topic-%d", topic);
    fill_id(partition->topic_id, topic);
    partition->index = index;
    atomic_init(&partition->references, 1);
    return partition;
}

static void check_all(pb_partition *partitions[TOPICS][INDEXES])
{
    for (int topic = 0; topic < TOPICS; topic++) {
        char name[32];
        uint8_t id[16];
        bool any = false;
        size_t length = (size_t)snprintf(name, sizeof name, "topic-%d", topic);
        fill_id(id, topic);
        for (int index = 0; index < INDEXES; index++)
            any = any || present[topic][index];
        for (int index = -1; index <= INDEXES; index++) {
            bool wanted = index >= 0 && index < INDEXES && present[topic][index], known = false;
            pb_partition *by_name = pb_registry_by_name(&registry, name, length, index);
            pb_partition *by_id = pb_registry_by_id(&registry, id, index, &known);
            CHECK(by_name == (wanted ? partitions[topic][index] : NULL));
            CHECK(by_id == by_name);
            CHECK_INT(known, any);
            if (wanted) {
                pb_partition_release(by_name);
                pb_partition_release(by_id);
            }
        }
    }
}

TEST(what_is_added_is_found_by_name_and_by_id_until_it_is_removed)
{
    static pb_partition *partitions[TOPICS][INDEXES];
    CHECK_INT(pb_registry_init(&registry), 0);
    srand(7);
    for (int step = 0; step < STEPS; step++) {
        int topic = rand() % TOPICS, index = rand() % INDEXES;
        if (partitions[topic][index] == NULL)
            partitions[topic][index] = make(topic, index);
        if (present[topic][index])
            pb_registry_remove(&registry, partitions[topic][index]);
        else
            CHECK_INT(pb_registry_add(&registry, partitions[topic][index]), 0);
        present[topic][index] = !present[topic][index];
        if (step % 500 == 0)
            check_all(partitions);
    }
    for (int topic = 0; topic < TOPICS; topic++)
        for (int index = 0; index < INDEXES; index++) {
            if (partitions[topic][index] == NULL)
                continue;
            pb_registry_remove(&registry, partitions[topic][index]);
            CHECK_INT(atomic_load(&partitions[topic][index]->references), 1);
            free(partitions[topic][index]);
        }
    pb_registry_destroy(&registry);
}

TEST(a_name_is_all_of_its_bytes)
{
    CHECK_INT(pb_registry_init(&registry), 0);
    pb_partition *partition = make(1, 0);
    CHECK_INT(pb_registry_add(&registry, partition), 0);
    CHECK(pb_registry_by_name(&registry, "topic-1\0x", 9, 0) == NULL);
    CHECK(pb_registry_by_name(&registry, "topic-1\0", 8, 0) == NULL);
    CHECK(pb_registry_by_name(&registry, "topic-", 6, 0) == NULL);
    CHECK(pb_registry_by_name(&registry, "", 0, 0) == NULL);
    pb_partition *other = make(1, 1);
    other->topic_id[0] ^= 1; /* another topic of the same name */
    CHECK_INT(pb_registry_add(&registry, other), -EEXIST);
    pb_registry_remove(&registry, partition);
    free(partition);
    free(other);
    pb_registry_destroy(&registry);
}

CHECK_MAIN()
