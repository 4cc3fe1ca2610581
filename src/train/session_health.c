// The health of the ranks' GPUs and machines: each rank looks at its own GPU once a second, and the
// first rank of each machine at what Linux counts of it every ten seconds, between two steps. The
// findings travel with the words after the next step. The first rank tells them; with
// resilience.straggler = evict the rank then loses its place, before its GPU or machine fails.
#include "train/session_health.h"
#include "train/health.h"

enum { LOOK_MS = 1000, MACHINE_LOOK_MS = 10000 };
// Findings of the first look are those bits further; those of the machine have the upper half.
enum { OLD_SHIFT = 16, MACHINE_SHIFT = 8 };
_Static_assert((int)HEALTH_FINDINGS <= (int)MACHINE_SHIFT, "a finding has a bit of its own");

struct session_health {
    nvml_library nvml;
    nvml_device gpu; // NULL: NVML does not tell it
    health trend, machine;
    bool sees_machine;
    int64_t looked_ns, machine_looked_ns;
    uint32_t found; // not yet told. What was so before the run is told, but drains no rank
};

static uint32_t machine_see(struct session_health *h)
{
    host_errors now;
    host_errors_read("", &now);
    return health_see_machine(&h->machine, &now) << MACHINE_SHIFT;
}

status session_health_open(session *s)
{
    const char *id = exec_facts(s->job.e).id, *why = NULL;
    const comm *all = s->ranks.all;
    struct session_health *h = NULL;
    nvml_state now;
    if (s->r->resilience.straggler == RUN_STRAGGLER_OFF) return ST_OK;
    TRY(arena_new(s->a, 1, &h));
    s->health = h;
    h->sees_machine = all == NULL || comm_local_rank(all) == 0;
    h->machine_looked_ns = session_now(s);
    if (h->sees_machine) h->found = machine_see(h) << OLD_SHIFT;
    if (id == NULL || !nvml_library_open(&h->nvml, &why)) return ST_OK;
    h->gpu = nvml_find_uuid(&h->nvml, id);
    if (h->gpu == NULL) return ST_OK;
    nvml_look(&h->nvml, h->gpu, &now);
    h->found |= health_see(&h->trend, &now) << OLD_SHIFT;
    return ST_OK;
}

void session_health_close(session *s)
{
    if (s->health != NULL) nvml_library_close(&s->health->nvml);
    s->health = NULL;
}

uint32_t session_health_look(session *s)
{
    struct session_health *h = s->health;
    nvml_state now;
    if (h == NULL) return 0;
    const int64_t at = session_now(s);
    if (h->gpu != NULL && (h->looked_ns == 0 || at - h->looked_ns >= (int64_t)LOOK_MS * 1000000)) {
        h->looked_ns = at;
        nvml_look(&h->nvml, h->gpu, &now);
        h->found |= health_see(&h->trend, &now);
    }
    if (h->sees_machine && at - h->machine_looked_ns >= (int64_t)MACHINE_LOOK_MS * 1000000) {
        h->machine_looked_ns = at;
        h->found |= machine_see(h);
    }
    const uint32_t found = h->found;
    h->found = 0;
    return found;
}

status session_health_hear(session *s, int64_t rank, uint32_t found)
{
    if (found == 0 || !session_is_first(s)) return ST_OK;
    const uint32_t all = (found | found >> OLD_SHIFT) & ((1u << OLD_SHIFT) - 1);
    const uint32_t now = found & ((1u << OLD_SHIFT) - 1);
    const health_part first =
        (now & ((1u << MACHINE_SHIFT) - 1)) != 0 ? HEALTH_GPU : HEALTH_MACHINE;
    const bool drains = now != 0 && session_shares_drain(s, rank, first);
    for (int i = 0; i < OLD_SHIFT; i++) {
        text line = {.a = s->a};
        char cause[HEALTH_CAUSE_BYTES];
        const health_finding f = (health_finding)(i % MACHINE_SHIFT);
        const health_part part = i < MACHINE_SHIFT ? HEALTH_GPU : HEALTH_MACHINE;
        if ((all & 1u << i) == 0) continue;
        health_cause(part, f, cause);
        session_say(s, LOG_WARN, "the %s of rank %lld is failing, seen at step %lld: %s%s",
                    health_part_name(part), (long long)rank, (long long)s->step,
                    health_finding_name(f), drains ? "; the rank loses its place" : "");
        TRY(text_add(&line,
                     "{\"step\": %lld, \"event\": \"health\", \"rank\": %lld, \"cause\": \"%s\"}\n",
                     (long long)s->step, (long long)rank, cause));
        TRY(session_event(s, &line));
    }
    return ST_OK;
}
