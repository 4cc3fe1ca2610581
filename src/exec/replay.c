// Chooses between posting a step and replaying it; captures a step's work on all streams.
#include "exec/replay.h"

#include <stdio.h>
#include <string.h>

status exec_replay_make(arena *a, const device_api *api, device *d, device_stream *const *streams,
                        int64_t count, exec_replay *out)
{
    *out = (exec_replay){.streams = streams, .stream_count = count};
    if (api->graph_begin == NULL) return ST_OK;
    TRY(arena_new(a, count, &out->joins));
    TRY(api->event_create(d, &out->fork));
    for (int64_t i = 0; i < count; i++) {
        if (streams[i] != NULL) TRY(api->event_create(d, &out->joins[i]));
    }
    out->api = api;
    return ST_OK;
}

// Returns why the step cannot be a graph; NULL: it can.
static const char *refusal(const exec_replay_plan *p, const exec_replay_step *step)
{
    const bool has_graph = p->slots[step->slot].graph != NULL;
    if (p->why[0] != '\0') return p->why;
    if (step->needs_host) return "its collectives wait for functions of the host";
    if (step->is_watched) return "it is traced, or values are copied out of it";
    if (has_graph && memcmp(p->slots[step->slot].batch, step->batch, sizeof(step->batch)) != 0) {
        return "its batch has other bytes than the captured one";
    }
    return NULL;
}

exec_replay_mode exec_replay_choose(exec_replay *r, exec_replay_plan *p,
                                    const exec_replay_step *step)
{
    if (r->api == NULL) return REPLAY_NONE;
    const char *why = refusal(p, step);
    if (why != NULL) {
        r->counts.refused++;
        r->counts.why = why;
        return REPLAY_NONE;
    }
    // Kernels and the library's algorithms are loaded when they are first used, which a capture
    // forbids.
    if (!p->is_prepared) {
        p->is_prepared = true;
        r->counts.prepared++;
        return REPLAY_NONE;
    }
    r->counts.replayed++;
    return p->slots[step->slot].graph != NULL ? REPLAY_LAUNCH : REPLAY_CAPTURE;
}

status exec_replay_fork(const exec_replay *r)
{
    bool posted = false;
    TRY(r->api->event_record(r->fork, r->streams[STREAM_COMPUTE], &posted));
    ASSERT(posted);
    for (int64_t i = 0; i < r->stream_count; i++) {
        if (i == STREAM_COMPUTE || r->streams[i] == NULL) continue;
        TRY(r->api->event_wait(r->streams[i], r->fork, &posted));
        ASSERT(posted);
    }
    return ST_OK;
}

static status join_post(const exec_replay *r)
{
    bool posted = false;
    for (int64_t i = 0; i < r->stream_count; i++) {
        if (i == STREAM_COMPUTE || r->streams[i] == NULL) continue;
        TRY(r->api->event_record(r->joins[i], r->streams[i], &posted));
        TRY(r->api->event_wait(r->streams[STREAM_COMPUTE], r->joins[i], &posted));
        ASSERT(posted);
    }
    return ST_OK;
}

bool exec_replay_end(exec_replay *r, exec_replay_plan *p, const exec_replay_step *step, status st)
{
    device_graph *graph = NULL;
    error_record first = {0};
    if (st == ST_OK) st = join_post(r);
    if (st != ST_OK) error_take(&first);
    const status ended = r->api->graph_end(r->streams[STREAM_COMPUTE], &graph);
    if (st == ST_OK && ended == ST_OK) {
        p->slots[step->slot].graph = graph;
        memcpy(p->slots[step->slot].batch, step->batch, sizeof(step->batch));
        return true;
    }
    r->api->graph_destroy(graph);
    (void)snprintf(p->why, sizeof(p->why), "%.190s", st != ST_OK ? first.text : error_last()->text);
    error_clear();
    r->counts.replayed--;
    r->counts.refused++;
    r->counts.why = p->why;
    return false;
}

void exec_replay_free(const exec_replay *r, exec_replay_plan *p)
{
    for (int i = 0; i < REPLAY_SLOTS && r->api != NULL; i++) {
        r->api->graph_destroy(p->slots[i].graph);
        p->slots[i].graph = NULL;
    }
}
