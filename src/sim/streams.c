#include "sim/streams.h"

status sim_streams_make(arena *a, const plan *p, sim_stream **out, int32_t *count)
{
    int32_t *actions = NULL;
    *count = (int32_t)(STREAM_GROUPS + p->run->group_count);
    TRY(arena_new(a, *count, out));
    TRY(arena_new(a, p->action_count + 1, &actions));
    for (int64_t i = 0; i < p->action_count; i++) (*out)[p->actions[i].stream].count++;
    for (int32_t n = 0; n < *count; n++) {
        sim_stream *l = &(*out)[n];
        l->actions = actions;
        actions += l->count;
        l->count = 0; // counts again
    }
    for (int32_t i = 0; i < p->action_count; i++) {
        sim_stream *l = &(*out)[p->actions[i].stream];
        l->actions[l->count++] = i;
    }
    return ST_OK;
}
