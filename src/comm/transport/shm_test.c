// What other threads of a rank may ask of its shared memory while one is busy with it.
#include "comm/transport/shm.h"

#include "comm/comm_internal.h"
#include "comm/test_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
// after the above, which it needs
#include <cmocka.h>

static void *ask(void *context)
{
    comm_awaited awaited[4];
    (void)comm_waits_for(context, awaited, 4);
    return NULL;
}

// To map a peer's gigabytes takes seconds, and each heartbeat asks whom this rank waits for: one that comes
// late is a false verdict.
static status busy_body(comm *c, void *context)
{
    (void)context;
    pthread_t thread;
    (void)pthread_mutex_lock(&c->link->mapping);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int late = pthread_create(&thread, NULL, ask, c);
    if (late == 0) late = pthread_timedjoin_np(thread, NULL, &until);
    (void)pthread_mutex_unlock(&c->link->mapping);
    if (late != 0)
        return fail_at(__FILE__, __LINE__, ST_TIMEOUT, "the answer waits for the memory");
    return comm_barrier(comm_world(c), "end");
}

static void heartbeats_do_not_wait_for_memory(void **state)
{
    (void)state;
    fixture_job job = {.ranks = 2, .body = busy_body};
    fixture_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heartbeats_do_not_wait_for_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
