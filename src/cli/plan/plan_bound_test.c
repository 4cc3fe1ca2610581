// Tests that the search's least time of a layout never exceeds the simulated time, and that its
// bytes equal those of the plans (below ZeRO-2): over layouts of small models, dense and with
// experts, on small clusters. LAYOUTS=N tests about N of each instead of a hundred
// (tests/bounds_night.sh).
#include "cli/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEVICES = 16, KEYS_MAX = 24 };

static void assert_ok(status st)
{
    if (st != ST_OK) print_error("%s: %s\n", status_name(st), error_last()->text);
    assert_int_equal(st, ST_OK);
}

// more: other keys, or other values of these; the profile hides only some of its collectives, or is
// "trireme".
static void planner_open(cli_context *cli, const char *model, const char *machine,
                         const char *const *more, planning *x)
{
    const char *keys[KEYS_MAX] = {"cluster.devices=16", "train.steps=10"};
    static const char *const usual[] = {
        "train.seq=512", "train.global_batch=32", "model.layers=8",    "model.dim=256",
        "model.heads=8", "model.kv_heads=8",      "model.ffn_dim=512", "model.vocab=2048"};
    int64_t count = 2;
    for (int64_t i = 0; more[i] != NULL; i++) keys[count++] = more[i];
    for (int64_t i = 0; i < COUNT_OF(usual); i++) {
        const size_t name = strcspn(usual[i], "=") + 1;
        // A model with experts in every layer has no MLP, and no width of it.
        bool is_given =
            strncmp(usual[i], "model.ffn_dim", name - 1) == 0 && strcmp(model, "mixtral-8x7b") == 0;
        for (int64_t k = 0; more[k] != NULL; k++) {
            is_given = is_given || strncmp(more[k], usual[i], name) == 0;
        }
        if (!is_given) keys[count++] = usual[i];
    }
    ASSERT(count <= KEYS_MAX);
    assert_ok(cli_context_init(cli, stdout, stderr));
    assert_ok(plan_open(cli, model, machine, keys, count, x));
    x->p.wanted = 4000;
}

// How far the least time is below the simulated one, and the number of layouts.
typedef struct gap {
    double most, sum;
    int64_t count;
} gap;

// Workspaces of compressed sums, which no estimate contains.
static int64_t sums_work_in(const plan *p)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (strcmp(p->tensors[i].name, "compression.work") == 0) bytes += p->tensors[i].bytes;
    }
    return bytes;
}

static void simulated_is_not_faster(predict_planner *p, const search_found *f, gap *g)
{
    predict_setup s;
    predict_step *x = NULL;
    char name[SEARCH_NAME_BYTES];
    arena_reset(p->each.work);
    assert_ok(arena_new(p->each.work, 1, &x));
    const status st = candidates_show(&p->each, p->each.work, &f->layout, &s, x);
    if (st != ST_OK && status_blast_radius(st) == RADIUS_USER) {
        error_clear();
        return;
    }
    assert_ok(st);
    const double share = (double)f->least.step_ns / (double)x->step->step_ns;
    if (share > 1.0 || getenv("SHOW") != NULL) {
        print_error("%s zero %d recompute %d micro-batch %d: at least %lld ns, simulated %lld\n",
                    search_layout_name(&f->layout, name), f->layout.zero, f->layout.recompute,
                    (int)f->layout.micro_batch, (long long)f->least.step_ns,
                    (long long)x->step->step_ns);
    }
    assert_true(share <= 1.0);
    if (1.0 - share > g->most) g->most = 1.0 - share;
    g->sum += 1.0 - share;
    g->count++;
    if (p->each.base.profile.context_bytes > 0)
        return; // plans do not contain the bytes of other software
    // Live bytes of the estimate's stage; the arena has holes in addition.
    const int32_t stage = f->memory.pp;
    const assemble_plans *plans = &(x->sized != NULL ? x->sized : x->plans)[stage];
    const int64_t lives = plans->run.run_bytes + plans->all[0]->live_bytes;
    // If halves of a backward are separate, or chunks alternate, a plan writes less in place than
    // it could, by a few percent. No plan has fewer bytes.
    const bool splits =
        f->layout.schedule != NULL && (f->layout.schedule->splits_backward || f->layout.chunks > 1);
    const double ratio = (double)f->bytes / (double)lives;
    const bool is_close =
        f->layout.zero >= 2 ? ratio > 0.9 && ratio < 1.1 : ratio > 0.96 && f->bytes <= lives;
    const int64_t work = sums_work_in(plans->all[0]);
    const bool is_packed = f->bytes <= lives && f->bytes + work >= lives;
    const bool is_right = f->bytes == lives || ((splits || f->layout.zero >= 2) && is_close) ||
                          (work > 0 && is_packed);
    if (!is_right) {
        print_error(
            "%s zero %d recompute %d micro-batch %d: %lld bytes of rank %d, %lld in plans\n",
            search_layout_name(&f->layout, name), f->layout.zero, f->layout.recompute,
            (int)f->layout.micro_batch, (long long)f->bytes, stage, (long long)lives);
        int64_t kind[PLAN_BYTES_COUNT];
        plan_memory_by_kind(plans->all[0], kind);
        for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
            print_error("  %-12s %10lld, in plans %10lld\n", plan_bytes_name((plan_kind_of_bytes)k),
                        (long long)f->memory.kind[k], (long long)kind[k]);
        }
    }
    assert_true(is_right);
}

static void models_are_bounded(const char *const (*of)[2], int64_t count, int64_t share,
                               const char *const *more)
{
    gap g = {.count = 0};
    const char *asked = getenv("LAYOUTS");
    const int64_t each = asked != NULL ? max_i64(strtol(asked, NULL, 10), 1) : share;
    int64_t most = 0;
    for (int64_t k = 0; k < count; k++) {
        cli_context cli;
        planning *x = malloc(sizeof(*x));
        search_result found;
        assert_non_null(x);
        predict_planner *p = &x->p;
        planner_open(&cli, of[k][0], of[k][1], more, x);
        assert_ok(predict_search(p, cli.a, 0, &found));
        assert_true(found.layouts > 100);
        most += min_i64(each, found.count);
        const int64_t apart = max_i64(found.count / each, 1);
        for (int64_t i = k % apart; i < found.count; i += apart) {
            simulated_is_not_faster(p, &found.plans[i], &g);
        }
        plan_close(x);
        cli_context_deinit(&cli);
        free(x);
    }
    assert_true(g.count > most / 2);
    print_message("%lld layouts: least times are %.1f%% below on the average, %.1f%% at most\n",
                  (long long)g.count, 100.0 * g.sum / (double)g.count, 100.0 * g.most);
}

static const char *const own[] = {"profile=trireme", NULL};

static void bound_holds(void **state)
{
    (void)state;
    static const char *const of[][2] = {{"tiny", "h100"}, {"tiny", "a100-80"}, {"tiny", "v100"}};
    models_are_bounded(of, COUNT_OF(of), 100, own);
}

static void bound_holds_with_partial_recomputation(void **state)
{
    (void)state;
    static const char *const of[][2] = {{"tiny", "h100"}, {"tiny", "v100"}};
    static const char *const some[] = {"profile=trireme", "train.recompute_layers=3", NULL};
    models_are_bounded(of, COUNT_OF(of), 60, some);
}

static void bound_holds_with_experts(void **state)
{
    (void)state;
    static const char *const of[][2] = {{"mixtral-8x7b", "h100"}, {"deepseek-v2", "v100"}};
    models_are_bounded(of, COUNT_OF(of), 40, own);
}

// One profile sums gradients after the backward pass, some in buckets, the next overlaps most of
// them; one recomputes whole layers and sends pieces between stages where layout.sp does not; the
// last two have all logits on each rank of tp, and nodes without a switch.
static void bound_holds_for_other_software(void **state)
{
    (void)state;
    static const struct {
        const char *of[2], *keys[4];
    } rows[] = {{{"tiny", "h100"}, {"profile=nanotron"}},
                {{"tiny", "v100"}, {"profile=nanotron", "profile.sum_bytes=200000"}},
                {{"tiny", "v100"}, {"profile=trireme", "profile.sum_bytes=1000000000"}},
                {{"tiny", "h100"}, {"profile=internevo"}},
                {{"tiny", "a100-80"}, {"profile=megatron", "layout.tp=2"}},
                {{"tiny", "a100-80"}, {"profile=megatron", "layout.tp=4", "layout.pp=4"}},
                {{"tiny", "a100-80"}, {"profile=megatron", "train.recompute_layers=5"}},
                {{"tiny", "h200-4"}, {"profile=torchtitan", "profile.whole_logits=yes"}},
                {{"tiny", "juwels-booster"}, {"profile=megatron", "profile.whole_head=yes"}}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        models_are_bounded(&rows[i].of, 1, 40, rows[i].keys);
    }
}

// Collectives large enough to be cut into pieces that overlap with GEMMs, with and without the
// gathers of layout.sp, for one sequence and several; and rings. The other software runs all of
// them between the GEMMs.
static void bound_holds_for_overlapped_gemms(void **state)
{
    (void)state;
    static const char *const of[][2] = {{"tiny", "h100"}, {"tiny", "v100"}};
    static const char *const keys[][8] = {
        {"profile=trireme", "layout.tp=4", "model.dim=1024", "train.seq=2048"},
        {"profile=trireme", "layout.tp=2", "layout.sp=yes", "model.dim=1024", "train.seq=2048",
         "train.micro_batch=1"},
        {"profile=trireme", "layout.tp=8", "layout.sp=yes", "model.dim=2048", "model.heads=16",
         "model.kv_heads=4"},
        {"profile=trireme", "layout.cp=2", "layout.cp_ring=yes"},
        {"profile=trireme", "layout.cp=8", "layout.cp_ring=yes", "train.seq=8192"},
        {"profile=trireme", "layout.cp=4", "layout.tp=2", "layout.sp=yes", "layout.cp_ring=yes",
         "model.dim=1024", "train.seq=4096"},
        {"profile=megatron", "layout.tp=4", "model.dim=1024", "train.seq=2048"},
        {"profile=megatron", "layout.cp=4", "layout.tp=2", "layout.sp=yes", "layout.cp_ring=yes",
         "model.dim=1024", "train.seq=4096"}};
    for (int64_t i = 0; i < COUNT_OF(keys); i++) {
        models_are_bounded(&of[i % COUNT_OF(of)], 1, 25, keys[i]);
    }
}

// Compressed gradients over few links and many: with each codec, in pieces of tp, over copies along
// cp, of experts, and with software that sums them after the backward pass.
static void bound_holds_for_compressed_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *of[2], *keys[8];
    } rows[] = {
        {{"tiny", "h100"}, {"comm.compression=int8"}},
        {{"tiny", "v100"}, {"comm.compression=bf16", "layout.pp=1"}},
        {{"tiny", "v100"}, {"comm.compression=topk", "comm.compression.keep=0.2", "layout.tp=4"}},
        {{"tiny", "h100"}, {"comm.compression=onebit", "layout.cp=2", "layout.tp=2"}},
        {{"tiny", "h100"}, {"comm.compression=fp8", "layout.zero=1", "layout.cp=4"}},
        {{"tiny", "h100"}, {"comm.compression=fp8", "layout.zero=3", "layout.zero_sums=step"}},
        {{"tiny", "h100"}, {"comm.compression=topk", "model.kv_heads=2", "layout.tp=4"}},
        {{"tiny", "h100"}, {"comm.compression=int8", "profile=nanotron"}},
        {{"tiny", "v100"}, {"comm.compression=onebit", "profile=internevo"}},
        {{"mixtral-8x7b", "h100"}, {"comm.compression=int8", "layout.ep=2"}}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *keys[8] = {"checkpoint.async=yes", "comm.compression.warmup=5"};
        const bool warms = strstr(rows[i].keys[0], "topk") || strstr(rows[i].keys[0], "onebit");
        int64_t n = warms ? 2 : 1;
        bool has_profile = false;
        for (int64_t k = 0; rows[i].keys[k] != NULL; k++) {
            keys[n++] = rows[i].keys[k];
            has_profile = has_profile || strncmp(rows[i].keys[k], "profile=", 8) == 0;
        }
        keys[n++] = has_profile ? NULL : "profile=trireme";
        ASSERT(n <= COUNT_OF(keys));
        models_are_bounded(&rows[i].of, 1, 25, keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bound_holds),
                                       cmocka_unit_test(bound_holds_with_partial_recomputation),
                                       cmocka_unit_test(bound_holds_with_experts),
                                       cmocka_unit_test(bound_holds_for_other_software),
                                       cmocka_unit_test(bound_holds_for_overlapped_gemms),
                                       cmocka_unit_test(bound_holds_for_compressed_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
