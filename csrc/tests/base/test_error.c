/* A failure carries its code and a text for people; errno codes explain themselves. */
#include <errno.h>

#include "base/error.h"
#include "tests/check.h"

TEST(a_kafka_code_is_returned_with_its_text)
{
    pb_failure failure;
    const int not_leader_or_follower = 6;
    CHECK_INT(pb_fail(&failure, not_leader_or_follower, "partition %s-%d", "orders", 3), not_leader_or_follower);
    CHECK_INT(failure.code, not_leader_or_follower);
    CHECK_STR(failure.text, "partition orders-3");
}

TEST(an_errno_gets_its_reason_appended)
{
    pb_failure failure;
    CHECK_INT(pb_fail(&failure, -ENOENT, "open %s", "/data"), -ENOENT);
    CHECK_STR(failure.text, "open /data: No such file or directory");
}

TEST(nobody_has_to_listen)
{
    CHECK_INT(pb_fail(NULL, -EIO, "unheard"), -EIO);
}

TEST(a_long_text_is_cut_and_terminated)
{
    pb_failure failure;
    memset(&failure, 'x', sizeof failure);
    pb_fail(&failure, -EIO, "%600d", 7);
    CHECK_INT(strlen(failure.text), PB_FAILURE_TEXT_BYTES - 1);
}

CHECK_MAIN()
