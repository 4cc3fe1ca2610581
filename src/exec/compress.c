// Compressed sums of a plan: the bytes that the codec needs, and the arguments of comm.
#include "exec/compress.h"

static comm_cut cut_of(const exec_codec *c, int64_t count, int32_t ranks, int64_t piece)
{
    comm_cut cut = {.codec = c->codec, .bucket = c->settings, .ranks = ranks, .piece = piece};
    cut.bucket.count = count;
    return cut;
}

static int64_t feedback_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    const comm_cut cut = cut_of(context, count, ranks, piece);
    return comm_compressed_state_bytes(&cut);
}

static int64_t work_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    const comm_cut cut = cut_of(context, count, ranks, piece);
    return comm_compressed_work_bytes(&cut);
}

static int64_t stream_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    const comm_cut cut = cut_of(context, count, ranks, piece);
    return comm_compressed_stream_bytes(&cut);
}

plan_codec exec_plan_codec(exec_codec *c)
{
    return (plan_codec){.name = c->codec->name,
                        .reals = COMM_REALS,
                        .feedback_bytes = feedback_bytes,
                        .work_bytes = work_bytes,
                        .stream_bytes = stream_bytes,
                        .context = c};
}

status exec_sums_make(arena *a, const plan *p, const exec_codec *codec, comm_group *const *groups,
                      char *base, comm_args *comms)
{
    comm_compressed *all = NULL;
    TRY(arena_new(a, p->comm_count + 1, &all));
    for (int64_t i = 0; i < p->comm_count; i++) {
        const plan_comm *c = &p->comms[i];
        if (!c->compressed) continue;
        comm_group *group = groups != NULL ? groups[c->group] : NULL;
        const int64_t row = c->bucket * (int64_t)p->codec_reals * (int64_t)sizeof(double);
        char *feedback = c->feedback != -1 ? base + plan_tensor_offset(p, c->feedback) : NULL;
        char *reals = base + plan_tensor_offset(p, p->losses) + row;
        all[i] = (comm_compressed){
            .cut = cut_of(codec, c->total, group != NULL ? comm_group_size(group) : 1, c->piece),
            .state = feedback,
            .work = base + plan_tensor_offset(p, c->work),
            .reals = (double *)(void *)reals};
        comms[i].compressed = &all[i];
    }
    return ST_OK;
}
