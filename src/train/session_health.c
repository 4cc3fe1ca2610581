// The health of the ranks' GPUs: each rank looks at its own once a second, between two steps, and
// its findings travel with the words after the next step. The first rank tells them; with
// resilience.straggler = evict the rank then loses its place, before its GPU fails.
#include "train/health.h"
#include "train/session.h"

enum { LOOK_MS = 1000, OLD_SHIFT = 16 }; // findings of the first look are those bits further

struct session_health {
    nvml_library nvml;
    nvml_device gpu;
    health trend;
    int64_t looked_ns;
    uint32_t found; // not yet told. What was so before the run is told, but drains no rank
};

status session_health_open(session *s)
{
    const char *id = exec_facts(s->job.e).id, *why = NULL;
    struct session_health *h = NULL;
    nvml_state now;
    if (id == NULL || s->r->resilience.straggler == RUN_STRAGGLER_OFF) return ST_OK;
    TRY(arena_new(s->a, 1, &h));
    if (!nvml_library_open(&h->nvml, &why)) return ST_OK;
    s->health = h;
    h->gpu = nvml_find_uuid(&h->nvml, id);
    if (h->gpu == NULL) return ST_OK;
    nvml_look(&h->nvml, h->gpu, &now);
    h->found = health_see(&h->trend, &now) << OLD_SHIFT;
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
    if (h == NULL || h->gpu == NULL) return 0;
    if (h->looked_ns == 0 || session_now(s) - h->looked_ns >= (int64_t)LOOK_MS * 1000000) {
        h->looked_ns = session_now(s);
        nvml_look(&h->nvml, h->gpu, &now);
        h->found |= health_see(&h->trend, &now);
    }
    const uint32_t found = h->found;
    h->found = 0;
    return found;
}

status session_health_hear(session *s, int64_t rank, uint32_t found)
{
    if (found == 0 || !session_is_first(s)) return ST_OK;
    const uint32_t all = (found | found >> OLD_SHIFT) & ((1u << OLD_SHIFT) - 1);
    const bool drains = (found & ((1u << OLD_SHIFT) - 1)) != 0 && session_shares_drain(s, rank);
    for (int f = 0; f < HEALTH_FINDINGS; f++) {
        text line = {.a = s->a};
        if ((all & 1u << f) == 0) continue;
        session_say(s, LOG_WARN, "the GPU of rank %lld is failing, seen at step %lld: %s%s",
                    (long long)rank, (long long)s->step, health_finding_name((health_finding)f),
                    drains ? "; the rank loses its place" : "");
        TRY(text_add(&line,
                     "{\"step\": %lld, \"event\": \"health\", \"rank\": %lld, \"cause\": \"%s\"}\n",
                     (long long)s->step, (long long)rank, health_finding_name((health_finding)f)));
        TRY(session_event(s, &line));
    }
    return ST_OK;
}
