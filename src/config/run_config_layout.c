// The layout of a run over ranks: the meaning of its keys, and conflicts between them.
// assemble/layout.c has the checks that need the model (tp must divide the heads).
#include "config/run_config_internal.h"
#include "config/run_length.h"
#include "op/pass/context.h"
#include "op/pass/partition.h"
#include "op/zigzag.h"

#include <string.h>

// ---- meaning ------------------------------------------------------------------------------------

int64_t run_config_ranks(const run_config *r)
{
    return r->layout.dp * r->layout.tp * r->layout.pp * r->layout.cp;
}

// By default tp shards experts. They stay whole if ep needs more ranks than dp x cp and sequence
// parallelism gives the tp ranks rows of their own.
static bool experts_are_whole(const run_config *r, const plan_mesh *m)
{
    plan_mesh whole = *m;
    whole.whole_experts = true;
    if (r->layout.tp == 1 || r->layout.etp > 1) return false;
    return r->layout.etp == 1 || (r->layout.sp && !plan_ep_fits(m) && plan_ep_fits(&whole));
}

plan_mesh run_config_mesh(const run_config *r, int64_t rank)
{
    plan_mesh m = {.size = {[AXIS_PP] = (int32_t)r->layout.pp,
                            [AXIS_DP] = (int32_t)r->layout.dp,
                            [AXIS_CP] = (int32_t)r->layout.cp,
                            [AXIS_TP] = (int32_t)r->layout.tp},
                   .zero_group = (int32_t)r->layout.zero_group,
                   .cp_heads = (int32_t)r->layout.cp_heads,
                   .ep = (int32_t)r->layout.ep,
                   .shares = r->layout.parts,
                   .share_count = r->layout.part_count};
    m.whole_experts = experts_are_whole(r, &m);
    return plan_mesh_from(&m, rank);
}

// Packed documents are shorter than the sequence, and small pieces balance them, down to the block
// size of attention. Strict mode has one turn, because its shards are pieces.
int32_t run_config_cp_turns(const run_config *r)
{
    enum { PIECE_LEAST = 16 };
    int32_t turns = ZIGZAG_MAX_TURNS;
    if (r->layout.cp == 1 || r->determinism.mode == RUN_STRICT) return 1;
    if (r->data.packing == RUN_PACKING_PLAIN) return 1;
    for (; turns > 1; turns /= 2) {
        const int64_t pieces = 2 * r->layout.cp * turns;
        if (r->train.seq % pieces == 0 && r->train.seq / pieces >= PIECE_LEAST) break;
    }
    return turns;
}

// The schedule that the key names; NULL: a file that is not read yet.
static const plan_schedule *schedule_of(const run_config *r)
{
    return r->layout.pipeline != NULL ? r->layout.pipeline : plan_schedule_find(r->layout.schedule);
}

static int64_t chunks_of(const run_config *r)
{
    if (r->layout.vpp > 0) return r->layout.vpp;
    return schedule_of(r) != NULL ? schedule_of(r)->chunks_min : 1;
}

int64_t run_config_depth(const run_config *r)
{
    const plan_schedule *schedule = schedule_of(r);
    if (schedule == NULL) return 0;
    const schedule_request shape = {
        .stages = (int32_t)r->layout.pp, .microbatches = 1, .chunks = (int32_t)chunks_of(r)};
    return plan_schedule_depth(schedule, &shape);
}

status run_config_pipeline(const run_config *r, arena *a, plan_pipeline_request *out)
{
    *out = (plan_pipeline_request){0};
    if (r->layout.pp == 1) return ST_OK;
    ASSERT(r->layout.pipeline != NULL);
    out->schedule = r->layout.pipeline;
    out->chunks = (int32_t)r->layout.vpp;
    const int64_t listed = r->layout.stages.count;
    if (listed == 0) return ST_OK;
    int32_t *rows = NULL;
    int64_t begin = 0;
    TRY(arena_new(a, listed, &rows));
    for (int64_t i = 0; i < listed; i++) {
        const int64_t end = begin + run_config_stage_halves(r, i);
        rows[i] = (int32_t)((end + 1) / 2 - begin / 2); // half a layer is a row too
        begin = end;
    }
    out->rows = rows;
    out->rows_count = (int32_t)listed;
    return ST_OK;
}

status run_config_halved(const run_config *r, arena *a, int32_t **out, int32_t *count)
{
    const int64_t listed = r->layout.stages.count;
    int64_t end = 0;
    *count = 0;
    TRY(arena_new(a, listed + 1, out));
    for (int64_t i = 0; i < listed; i++) {
        end += run_config_stage_halves(r, i);
        if (end % 2 != 0) (*out)[(*count)++] = (int32_t)(end / 2);
    }
    return ST_OK;
}

status run_config_print_layout(const run_config *r, text *out)
{
    const struct {
        const char *name;
        int64_t ranks;
    } axes[] = {
        {"dp", r->layout.dp}, {"tp", r->layout.tp}, {"pp", r->layout.pp}, {"cp", r->layout.cp}};
    const bool whole_experts = run_config_mesh(r, 0).whole_experts;
    const char *between = "";
    for (int64_t i = 0; i < COUNT_OF(axes); i++) {
        if (axes[i].ranks == 1 && (i > 0 || run_config_ranks(r) > 1)) continue;
        TRY(text_add(out, "%s%s %lld", between, axes[i].name, (ll)axes[i].ranks));
        between = " · ";
        if (i == 1 && r->layout.sp) TRY(text_add(out, " sp"));
        if (i == 2) TRY(text_add(out, " %s", path_base_name(r->layout.schedule)));
        if (i == 2 && chunks_of(r) > 1) TRY(text_add(out, " x %lld", (ll)chunks_of(r)));
        if (i == 3 && r->layout.cp_heads > 1) {
            TRY(text_add(out, " (%lld over heads)", (ll)r->layout.cp_heads));
        }
        if (i == 3 && r->layout.cp_ring == RUN_YES) TRY(text_add(out, " ring"));
    }
    if (r->layout.ep > 1) TRY(text_add(out, "%sep %lld", between, (ll)r->layout.ep));
    if (r->layout.ep > 1) between = " · ";
    if (whole_experts) TRY(text_add(out, "%setp 1", between));
    if (whole_experts) between = " · ";
    if (r->layout.zero > 0) TRY(text_add(out, "%szero %lld", between, (ll)r->layout.zero));
    if (r->layout.zero_group > 0)
        TRY(text_add(out, " in groups of %lld", (ll)r->layout.zero_group));
    if (r->layout.zero > 0 && r->layout.zero_sums == RUN_SUMS_STEP)
        TRY(text_add(out, ", summed once"));
    return ST_OK;
}

int64_t run_config_stage_halves(const run_config *r, int64_t index)
{
    enum { MOST = 10000 }; // the limit of model.layers
    double layers = 0.0;
    ASSERT(index >= 0 && index < r->layout.stages.count);
    const bool is_number = text_parse_f64(r->layout.stages.items[index], &layers);
    if (!is_number || layers < 0.0 || layers > MOST) return -1;
    const int64_t halves = (int64_t)(2.0 * layers);
    return (double)halves == 2.0 * layers ? halves : -1;
}

// ---- keys that depend on an axis ----------------------------------------------------------------

#define FOLLOWER(axis, key)                                                         \
    {                                                                               \
        "layout." #axis, "layout." #key, (int64_t)offsetof(run_config, layout.key), \
            (int64_t)sizeof(((run_config *)NULL)->layout.key)                       \
    }

// Derives layout.parts from layout.shares. Entries that are no number become 0, which the checks
// refuse.
static status shares_read(run_config *r, arena *a)
{
    const int64_t count = r->layout.shares.count;
    int64_t *parts = NULL;
    if (count == 0) return ST_OK;
    TRY(arena_new(a, count, &parts));
    for (int64_t i = 0; i < count; i++) {
        if (!text_parse_i64(r->layout.shares.items[i], &parts[i])) parts[i] = 0;
    }
    r->layout.parts = parts;
    r->layout.part_count = count;
    return ST_OK;
}

// A command line can continue a run in another layout, although its file was written for an axis
// that the command line removes.
status run_config_follow(run_config *r, const config *c, arena *a)
{
    static const struct {
        const char *axis, *key;
        int64_t offset, bytes;
    } followers[] = {FOLLOWER(pp, schedule),    FOLLOWER(pp, vpp),          FOLLOWER(pp, stages),
                     FOLLOWER(tp, sp),          FOLLOWER(cp, cp_heads),     FOLLOWER(dp, zero),
                     FOLLOWER(dp, zero_group),  FOLLOWER(zero, zero_group), FOLLOWER(dp, zero_sums),
                     FOLLOWER(zero, zero_sums), FOLLOWER(tp, etp),          FOLLOWER(dp, shares)};
    run_config defaults;
    text dropped = {.a = a};
    TRY(option_set_defaults(&run_config_table, a, &defaults));
    for (int i = 0; i < COUNT_OF(followers); i++) {
        const option *axis = option_find(&run_config_table, followers[i].axis);
        const option *key = option_find(&run_config_table, followers[i].key);
        const char *from = config_origin(c, axis->key), *of_key = config_origin(c, key->key);
        const bool is_gone = strcmp(from, "command line") == 0 && option_equal(axis, r, &defaults);
        if (!is_gone || strcmp(of_key, "command line") == 0 || option_equal(key, r, &defaults)) {
            continue;
        }
        memcpy((char *)r + followers[i].offset, (const char *)&defaults + followers[i].offset,
               (size_t)followers[i].bytes);
        TRY(text_add(&dropped, "%s%s", dropped.length > 0 ? ", " : "", key->key));
    }
    if (dropped.length > 0) r->dropped = dropped.bytes;
    TRY(shares_read(r, a));
    return run_length_choose(r, c, a);
}

// ---- keys without effect ------------------------------------------------------------------------

static void check_effects(checker *k)
{
    static const char *const of_pp[] = {"layout.vpp", "layout.stages", "layout.schedule", NULL};
    static const char *const of_tp[] = {"layout.sp", NULL};
    static const char *const of_cp[] = {"layout.cp_heads", "layout.cp_ring", NULL};
    static const char *const of_zero_axes[] = {"layout.zero", NULL};
    static const char *const of_zero[] = {"layout.zero_group", "layout.zero_sums", NULL};
    static const char *const of_ranks[] = {"comm.transport", "comm.tuning", NULL};
    static const char *const of_dp[] = {"layout.shares", NULL};
    const run_config *r = k->r;
    if (r->layout.pp == 1) check_refuse_keys(k, of_pp, "layout.pp is 1");
    if (r->layout.tp == 1) check_refuse_keys(k, of_tp, "layout.tp is 1");
    if (r->layout.cp == 1) check_refuse_keys(k, of_cp, "layout.cp is 1");
    if (r->layout.dp * r->layout.cp == 1) {
        check_refuse_keys(k, of_zero_axes, "layout.dp and layout.cp are 1");
    }
    if (r->layout.zero == 0) check_refuse_keys(k, of_zero, "layout.zero is 0");
    if (run_config_ranks(r) == 1) check_refuse_keys(k, of_ranks, "layout.dp is 1");
    if (r->layout.dp == 1) check_refuse_keys(k, of_dp, "layout.dp is 1");
}

// ---- conflicts ----------------------------------------------------------------------------------

// A number of ranks must divide another key's value.
static void check_divides(checker *k, const char *key, int64_t value, const char *of, int64_t whole)
{
    char near[64];
    if (whole % value == 0) return;
    CONFLICT(key, "%s = %lld does not divide %s = %lld; nearest that do: %s", key, (ll)value, of,
             (ll)whole, check_near_divisors(whole, value, near));
}

// Each rank of several has two equal pieces of a sequence.
static void check_pieces(checker *k, const char *key, int64_t value)
{
    const int64_t step = 2 * value, seq = k->r->train.seq;
    if (value == 1 || seq % step == 0) return;
    CONFLICT(key,
             "%s = %lld cuts a sequence into %lld pieces, which do not divide train.seq = %lld; "
             "nearest that they do: %lld",
             key, (ll)value, (ll)step, (ll)seq, (ll)max_i64(seq / step * step, step));
}

// Each rank of layout.tp has its part of a sequence, or of each piece that strict mode computes
// separately.
static void check_positions(checker *k)
{
    const run_config *r = k->r;
    const bool strict = r->determinism.mode == RUN_STRICT;
    const int64_t own = strict ? r->determinism.cp_shards / r->layout.cp : 1; // of a rank's shards
    const int64_t pieces = r->layout.cp * (own > 1 ? 2 * own : 1), step = r->layout.tp * pieces;
    if (r->train.seq % step == 0) return;
    CONFLICT("layout.sp",
             "layout.sp = yes cuts each of %lld pieces of a sequence over layout.tp = %lld, and "
             "train.seq = %lld is not a multiple of %lld; nearest that is: %lld",
             (ll)pieces, (ll)r->layout.tp, (ll)r->train.seq, (ll)step,
             (ll)max_i64(r->train.seq / step * step, step));
}

// Limits the number of terms of a sum per rank.
static void check_shards(checker *k, const char *key, int64_t shards, const char *of, int64_t ranks)
{
    _Static_assert((int)OP_CUT_MAX_TERMS == (int)OP_CONTEXT_MAX_TERMS, "one limit for both");
    if (shards <= OP_CUT_MAX_TERMS * ranks) return;
    CONFLICT(key, "%s = %lld is more than %d for each rank of %s = %lld", key, (ll)shards,
             OP_CUT_MAX_TERMS, of, (ll)ranks);
}

static void check_axes(checker *k)
{
    const run_config *r = k->r;
    if (r->layout.zero_group > 0) {
        check_divides(k, "layout.zero_group", r->layout.zero_group, "layout.dp", r->layout.dp);
    }
    if (r->layout.zero_group == 1 && r->layout.cp == 1 && r->layout.zero > 0) {
        CONFLICT("layout.zero_group",
                 "layout.zero_group = 1 leaves layout.zero no ranks to shard over");
    }
    if (r->layout.sp) check_positions(k);
    check_divides(k, "layout.cp_heads", r->layout.cp_heads, "layout.cp", r->layout.cp);
    check_pieces(k, "layout.cp", r->layout.cp);
    if (r->layout.cp_ring == RUN_YES && r->layout.cp > 1 && r->layout.cp_heads == r->layout.cp) {
        CONFLICT("layout.cp_ring",
                 "layout.cp_ring = yes: layout.cp_heads = %lld is all of layout.cp, and leaves no "
                 "ranks for a ring",
                 (ll)r->layout.cp_heads);
    }
    if (r->determinism.mode != RUN_STRICT) return;
    if (r->layout.cp_ring == RUN_YES) {
        CONFLICT(
            "layout.cp_ring",
            "layout.cp_ring = yes cannot be used with determinism = strict: a ring adds in the "
            "order of its ranks; layout.cp_ring = no gathers keys and values");
    }
    check_pieces(k, "determinism.cp_shards", r->determinism.cp_shards);
    check_divides(k, "layout.tp", r->layout.tp, "determinism.tp_shards", r->determinism.tp_shards);
    check_divides(k, "layout.cp", r->layout.cp, "determinism.cp_shards", r->determinism.cp_shards);
    check_shards(k, "determinism.tp_shards", r->determinism.tp_shards, "layout.tp", r->layout.tp);
    check_shards(k, "determinism.etp_shards", r->determinism.etp_shards, "layout.tp", r->layout.tp);
    const int64_t cp_apart =
        // With cp over heads only, a rank has all shards.
        r->layout.cp / max_i64(r->layout.cp_heads, 1);
    check_shards(k, "determinism.cp_shards", r->determinism.cp_shards,
                 cp_apart == r->layout.cp ? "layout.cp" : "layout.cp / layout.cp_heads",
                 max_i64(cp_apart, 1));
}

static void check_pipeline(checker *k)
{
    const run_config *r = k->r;
    const int64_t listed = r->layout.stages.count, depth = run_config_depth(r);
    int64_t halves = 0;
    if (r->layout.pp == 1) return;
    if (r->layout.pp > SCHEDULE_MAX_STAGES) {
        CONFLICT("layout.pp", "layout.pp = %lld, at most %d stages expected", (ll)r->layout.pp,
                 SCHEDULE_MAX_STAGES);
        return;
    }
    if (listed == 0) return;
    if (depth > 0 && listed != depth) {
        CONFLICT("layout.stages",
                 "layout.stages lists %lld stages, but layout.pp = %lld with layout.schedule = %s "
                 "needs %lld",
                 (ll)listed, (ll)r->layout.pp, path_base_name(r->layout.schedule), (ll)depth);
        return;
    }
    for (int64_t i = 0; i < listed; i++) {
        const int64_t own = run_config_stage_halves(r, i);
        const bool is_end = i == 0 || i == listed - 1; // the stage has the embedding or the head
        if (own < (is_end ? 0 : 1)) {
            CONFLICT("layout.stages",
                     "layout.stages: stage %lld has \"%s\" layers, %s0.5, 1, 1.5 or more expected: "
                     "a half layer ends after its attention",
                     (ll)i, r->layout.stages.items[i], is_end ? "0, " : "");
            return;
        }
        halves += own;
    }
    if (r->model.layers > 0 && 2 * r->model.layers != halves) {
        CONFLICT("layout.stages", "layout.stages has %g layers, but model.layers = %lld",
                 0.5 * (double)halves, (ll)r->model.layers);
    }
}

static void check_shares(checker *k)
{
    enum { SHARE_MAX = 1000000 };
    const run_config *r = k->r;
    const int64_t count = r->layout.shares.count;
    if (count == 0) return;
    if (count != r->layout.dp) {
        CONFLICT("layout.shares", "layout.shares lists %lld ranks, but layout.dp = %lld", (ll)count,
                 (ll)r->layout.dp);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (r->layout.parts[i] >= 1 && r->layout.parts[i] <= SHARE_MAX) continue;
        CONFLICT("layout.shares",
                 "layout.shares: rank %lld has \"%s\" parts, expected a whole number from 1 to %d",
                 (ll)i, r->layout.shares.items[i], SHARE_MAX);
        return;
    }
    if (r->layout.ep > 1) {
        CONFLICT("layout.shares",
                 "layout.shares cannot be used with layout.ep = %lld: ranks that share experts "
                 "exchange rows in every micro-batch, so each takes as many sequences",
                 (ll)r->layout.ep);
    }
}

// Refuses a dp rank without work in some step.
static void check_idle(checker *k)
{
    const run_config *r = k->r;
    const bool strict = r->determinism.mode == RUN_STRICT;
    if (strict && r->layout.dp > r->determinism.shards) {
        CONFLICT("layout.dp", "layout.dp = %lld is more than determinism.shards = %lld",
                 (ll)r->layout.dp, (ll)r->determinism.shards);
        return;
    }
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        int64_t idle = -1, first = 0, own = 0;
        plan_mesh mesh = {.size = {[AXIS_DP] = (int32_t)r->layout.dp},
                          .shares = r->layout.parts,
                          .share_count = r->layout.part_count};
        for (int64_t rank = 0; rank < r->layout.dp && idle < 0 && size > 0; rank++) {
            mesh.at[AXIS_DP] = (int32_t)rank;
            plan_own_sequences(&mesh, strict, (int32_t)r->determinism.shards, size, &first, &own);
            if (own == 0) idle = rank;
        }
        if (idle < 0) continue;
        CONFLICT("layout.dp",
                 "layout.dp = %lld leaves rank %lld without one of the %lld sequences of a step%s",
                 (ll)r->layout.dp, (ll)idle, (ll)size,
                 strict && size >= r->layout.dp ? ": it takes whole shards (determinism.shards)"
                                                : "");
        break;
    }
}

// The first key that makes ranks hold different parts of the state; NULL: each rank holds all of
// it.
static const char *cut_by(const run_config *r)
{
    if (r->layout.zero > 0) return "layout.zero";
    if (r->layout.tp > 1) return "layout.tp";
    return r->layout.pp > 1 ? "layout.pp" : NULL;
}

void check_layout(checker *k)
{
    enum { RANKS_MAX = 1 << 20 };
    const run_config *r = k->r;
    const int64_t axes[] = {r->layout.dp, r->layout.tp, r->layout.pp, r->layout.cp};
    int64_t ranks = 1;
    for (int64_t i = 0; i < COUNT_OF(axes) && ranks <= RANKS_MAX; i++) ranks *= axes[i];
    if (ranks > RANKS_MAX) {
        CONFLICT("layout.dp", "the layout needs more than %d ranks", RANKS_MAX);
        return;
    }
    // `train` and `simulate` have already replaced `auto` by the layout that they found.
    if (r->layout.mode == RUN_LAYOUT_AUTO && !r->searched) {
        CONFLICT(
            "layout.mode",
            "layout = auto: `trireme train` chooses the layout when it starts; expected a layout "
            "here, such as `trireme plan --write FILE` writes");
    }
    check_effects(k);
    check_axes(k);
    check_pipeline(k);
    if (ranks > 1 && r->kernels.device == RUN_DEVICE_SHADOW) {
        config_complain(
            k->l, "kernels.device", ST_UNSUPPORTED,
            "kernels.device = shadow runs in its host's thread, which waits for other ranks, "
            "so it trains only with one rank: layout.dp = 1");
    }
    if (cut_by(r) != NULL && !r->checkpoint.async) {
        CONFLICT("checkpoint.async",
                 "checkpoint.async = no cannot be used with %s: rank 0 needs a copy of the state "
                 "that the other ranks hold",
                 cut_by(r));
    }
    check_shares(k);
    check_idle(k);
}
