// Tests bisect: sound layouts agree with one rank, and mistakes are named at their place.
#include "diagnose/bisect.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_run.h"

#include <stdlib.h>

typedef struct layout {
    const char *name;
    const char *set[20];
    int ranks;
} layout;

// Roundings are measured without fp64.
static bool is_coarse(const layout *l)
{
    return strncmp(l->name, "no fp64", 7) == 0;
}

static void printed(void *context, const bisect_item *item)
{
    (void)context;
    if (getenv("VERBOSE") == NULL) return; // the environment of the test
    print_message("%lld %s %s %s: %lld, %lld differ, worst %.3f\n", (long long)item->step,
                  bisect_phase_name(item->phase), item->block, item->tensor,
                  (long long)item->elements, (long long)item->differ, item->worst);
}

static void found_print(const bisect_report *report)
{
    const bisect_found *f = &report->first;
    print_message(
        "  %s of %s, %s [%lld %lld %lld %lld] %.9g %.9g bound %.3g by %s (not %s) after %s\n",
        bisect_phase_name(f->item.phase), f->item.block, f->item.tensor,
        (long long)f->index.sequence, (long long)f->index.position, (long long)f->index.row,
        (long long)f->index.column, f->value, f->expected, f->bound, f->ranks, f->others,
        f->before);
}

static status bisect_run_of(const layout *l, void (*tamper)(void *, int, assemble_plans *),
                            arena *a, bisect_report *report)
{
    run_config *r = NULL;
    config *c = NULL;
    const char *set[COUNT_OF(l->set) + 1] = {"train.seq=16"};
    int count = 0;
    for (; count < COUNT_OF(l->set) && l->set[count] != NULL; count++)
        set[count + 1] = l->set[count];
    assert_int_equal(arena_new(a, 1, &r), ST_OK);
    test_config("bisect", set, count + 1, a, r, &c);
    const bisect_order order = {.r = r,
                                .steps = 2,
                                .fp64_flops = is_coarse(l) ? 1.0 : 0.0,
                                .compared = printed,
                                .tamper = tamper};
    return diagnose_bisect(host_real(), a, &order, report);
}

#define GPT2                                                                      \
    "model.arch=gpt2", "model.kv_heads=4", "model.layers=4", "model.dropout=0.1", \
        "train.z_loss=1e-4"

static const layout sound[] = {
    {"one rank", {"train.micro_batch=2"}, 1},
    {"uneven dp, zero", {"layout.dp=3", "layout.zero=1", "train.micro_batch=1"}, 3},
    {"all axes", {"layout.dp=2", "layout.tp=2", "layout.pp=2", "train.micro_batch=1", GPT2}, 8},
    {"sequence parallel", {"layout.tp=2", "layout.sp=yes", "train.recompute=full", GPT2}, 2},
    {"keys of two ranks", {"layout.tp=4", "layout.sp=yes", "train.micro_batch=4"}, 4},
    {"norms of one head", {"layout.tp=4", "model.arch=qwen3", "model.kv_heads=1"}, 4},
    {"cp x tp", {"layout.cp=2", "layout.tp=2", "train.micro_batch=4"}, 4},
    {"cp, documents",
     {"layout.cp=2", "layout.dp=2", "data.packing=masked", "train.recompute=full", GPT2},
     4},
    {"cp over heads, in a ring",
     {"layout.cp=4", "layout.cp_heads=2", "layout.cp_ring=yes", "data.packing=masked"},
     4},
    {"zero 2", {"layout.dp=2", "layout.zero=2", "train.micro_batch=2"}, 2},
    {"zero 3", {"layout.dp=2", "layout.tp=2", "layout.zero=3", "train.precision=bf16"}, 4},
    {"strict", {"determinism=strict", "determinism.tp_shards=4", "layout.tp=2", "layout.dp=2"}, 4},
    {"both ways", {"layout.pp=2", "layout.schedule=dualpipe", "train.micro_batch=1", GPT2}, 2},
    {"zero bubble", {"layout.pp=2", "layout.schedule=zb-v", "train.micro_batch=1", GPT2}, 2},
    {"bf16, small",
     {"layout.dp=2", "layout.zero=1", "train.precision=bf16", "precision.grads=bf16",
      "precision.moments=bf16", "optimizer.stochastic_rounding=yes", GPT2},
     2},
    {"fp16", {"layout.pp=2", "train.precision=fp16", "train.micro_batch=2", GPT2}, 2},
    {"muon of pieces", {"layout.tp=2", "optimizer.name=muon", "train.micro_batch=4"}, 2},
    {"muon", {"layout.dp=2", "layout.zero=1", "optimizer.name=muon"}, 2},
    {"no fp64, bf16",
     {"layout.dp=2", "layout.pp=2", "train.micro_batch=2", "train.precision=bf16"},
     4},
    {"histories of fp8",
     {"layout.dp=2", "layout.tp=2", "layout.zero=1", "train.precision=fp8", "precision.fp8=tensor"},
     4},
    {"one table", {"layout.pp=2", "layout.tp=2", "train.micro_batch=2", "model.tied=no"}, 4},
};

// Layouts of the night run, whose features the others cover too.
static const layout sound_too[] = {
    {"dp", {"layout.dp=2", "train.micro_batch=2"}, 2},
    {"tp", {"layout.tp=2", "train.micro_batch=4"}, 2},
    {"pp", {"layout.pp=2", "train.micro_batch=2"}, 2},
    {"dropout, dp x tp", {"layout.dp=2", "layout.tp=4", GPT2}, 8},
    {"recompute", {"layout.tp=2", "layout.dp=2", "train.recompute=full"}, 4},
    {"cp over heads x tp", {"layout.cp=2", "layout.cp_heads=2", "layout.tp=2", GPT2}, 4},
    {"bf16", {"layout.dp=2", "layout.tp=2", "train.precision=bf16"}, 4},
    {"no fp64", {"layout.dp=2", "layout.tp=2"}, 4},
};

static void layouts_agree(const layout *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const layout *l = &rows[i];
        arena *a = NULL;
        bisect_report report;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        const status st = bisect_run_of(l, NULL, a, &report);
        if (st != ST_OK) print_error("%s: %s\n", l->name, error_last()->text);
        assert_int_equal(st, ST_OK);
        print_message("%s: %lld tensors, %lld values, worst %.3f of its bound in %s\n", l->name,
                      (long long)report.items, (long long)report.elements, report.worst,
                      report.where);
        if (report.differs) found_print(&report);
        assert_false(report.differs);
        assert_true(report.by_fp64 == !is_coarse(l));
        assert_int_equal(report.ranks, l->ranks);
        arena_destroy(a);
    }
}

static void sound_layouts_agree(void **state)
{
    (void)state;
    layouts_agree(sound, COUNT_OF(sound));
    if (part_of(TRIALS_PART) == 1) layouts_agree(sound_too, COUNT_OF(sound_too));
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static void a_signal_stops_between_steps(void **state)
{
    (void)state;
    arena *a = NULL;
    run_config r;
    config *c = NULL;
    bisect_report report;
    static const char *const set[] = {"layout.dp=2", "train.seq=16"};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    test_config("stopped", set, COUNT_OF(set), a, &r, &c);
    const bisect_order order = {.r = &r, .steps = 2, .stop_asked = always};
    assert_int_equal(diagnose_bisect(host_real(), a, &order, &report), ST_STOPPED);
    arena_destroy(a);
}

static void codecs_are_refused(void **state)
{
    (void)state;
    arena *a = NULL;
    run_config r;
    config *c = NULL;
    bisect_report report;
    static const char *const set[] = {"layout.dp=2", "comm.compression=int8"};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    test_config("codec", set, COUNT_OF(set), a, &r, &c);
    const bisect_order order = {.r = &r, .steps = 1};
    assert_int_equal(diagnose_bisect(host_real(), a, &order, &report), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "comm.compression"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_layouts_agree),
        cmocka_unit_test(a_signal_stops_between_steps),
        cmocka_unit_test(codecs_are_refused),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
