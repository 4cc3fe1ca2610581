// Creates streams and rendezvous of a discrete-event loop. The other functions are inline, because
// they are the inner loop of every simulation.
#include "base/event_loop.h"

#include <string.h>

status event_loop_add(arena *a, event_loop *loop, int32_t count)
{
    const int64_t all = (int64_t)loop->stream_count + count;
    ASSERT(count >= 0 && all <= INT32_MAX);
    TRY(arena_grow(a, (void **)&loop->streams, &loop->stream_capacity, all,
                   (int64_t)sizeof(event_stream)));
    TRY(arena_grow(a, (void **)&loop->ready, &loop->ready_capacity, all, (int64_t)sizeof(int32_t)));
    memset(loop->streams + loop->stream_count, 0, (size_t)count * sizeof(event_stream));
    loop->stream_count = (int32_t)all;
    return ST_OK;
}

status event_rendezvous_make(arena *a, int32_t members, event_rendezvous *out)
{
    ASSERT(members > 0);
    *out = (event_rendezvous){.members = members};
    return arena_new(a, members, &out->streams);
}
