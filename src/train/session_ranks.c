// Agreement of the ranks of a run between steps.
//
// All ranks run the same session: same steps and same results, to the bit. Rank 0 owns the run
// folder and the checkpoints and reports to the user. Only external events (a signal, a clock) can
// differ between ranks. They are agreed on before each step, so no rank begins a step that another
// does not begin.
#include "train/session.h"

#include "base/hash.h"
#include "device/gpus.h"

#include <string.h>

plan_mesh session_mesh(const session *s)
{
    return run_config_mesh(s->r, s->ranks.all != NULL ? comm_rank(s->ranks.all) : 0);
}

bool session_is_first(const session *s)
{
    return s->ranks.all == NULL || comm_rank(s->ranks.all) == 0;
}

status session_ranks_open(session *s, comm *all)
{
    const int64_t wanted = run_config_ranks(s->r);
    const int started = all != NULL ? comm_ranks(all) : 1;
    s->ranks.all = all;
    if (started != wanted) {
        text layout = {.a = s->a};
        TRY(run_config_print_layout(s->r, &layout));
        return fail(ST_CONFIG_CONFLICT, "the layout (%s) is of %lld ranks, and %d were started",
                    layout.bytes, (long long)wanted, started);
    }
    s->ranks.hosts = all != NULL ? comm_world(all) : NULL;
    return ST_OK;
}

status session_gpu_find(session *s)
{
    const int64_t ranks = s->ranks.all != NULL ? comm_ranks(s->ranks.all) : 1;
    const int place = s->ranks.all != NULL ? comm_local_rank(s->ranks.all) : 0;
    char id[DEVICE_GPU_ID_BYTES];
    uint64_t own = 0, *each = NULL;
    s->gpu_ranks = s->gpu_ranks_most = 0;
    if (s->r->kernels.device != RUN_DEVICE_CUDA) return ST_OK;
    device_cuda_id(place, id);
    if (id[0] != '\0') own = hash64(id, (int64_t)strlen(id), 1);
    TRY(arena_new(s->a, ranks, &each));
    TRY(session_gather(s, &own, each, (int64_t)sizeof(own), "GPUs of the ranks"));
    for (int64_t i = 0; i < ranks; i++) {
        int64_t same = 0;
        for (int64_t k = 0; k < ranks; k++) same += each[i] != 0 && each[k] == each[i];
        if (each[i] == own) s->gpu_ranks = same;
        s->gpu_ranks_most = max_i64(s->gpu_ranks_most, same);
    }
    return ST_OK;
}

void session_ranks_close(session *s)
{
    s->ranks = (train_ranks){0}; // the job owns the hosts' group
}

status session_agree(const session *s, int *value, const char *what)
{
    if (s->ranks.hosts == NULL) return ST_OK;
    int32_t shared = *value;
    TRY(comm_all_reduce(s->ranks.hosts, &shared, 1, DTYPE_I32, REDUCTION_MAX, what, __func__));
    *value = shared;
    return ST_OK;
}

status session_gather(const session *s, const void *own, void *all, int64_t bytes, const char *what)
{
    const comm_item item = {.in = own, .out = all, .count = bytes};
    const comm_args args = {.op = COLLECTIVE_ALL_GATHER,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .tensor = what,
                            .site = __func__,
                            .step = s->step};
    if (s->ranks.hosts != NULL) return comm_run(s->ranks.hosts, &args);
    memcpy(all, own, (size_t)bytes);
    return ST_OK;
}

status session_barrier(const session *s, const char *what)
{
    return s->ranks.hosts != NULL ? comm_barrier(s->ranks.hosts, what) : ST_OK;
}
