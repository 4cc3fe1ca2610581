// `simulate` with `layout: auto`: the layout that the planner finds fastest on the cluster. Where nothing fits the smallest
// one, for `simulate` says of every run how large it is.
#include "cli/plan/plan.h"

status plan_chosen(cli_context *cli, const simulate_words *run, const config *c, run_config *given,
                   const char ***out, int64_t *count)
{
    planner *p = NULL;
    arena *a = NULL;
    const char **all = NULL;
    search_result found = {.count = 0};
    TRY(arena_new(cli->a, 1, &p));
    TRY(arena_new(cli->a, run->key_count + PLAN_LAYOUT_KEYS, &all));
    TRY(plan_open(cli, run->operand, run->cluster, run->keys, run->key_count, p));
    p->given = given; // also what the file says of micro-batches and recomputation
    status st = plan_fix(p, c);
    if (st == ST_OK) st = arena_create("layout: auto", 0, &a);
    if (st == ST_OK) st = plan_search(p, a, p->plays, &found);
    const search_found *best = found.count > 0 ? &found.plans[0] : &found.smallest;
    if (st == ST_OK && best->layout.dp == 0) {
        st = fail(ST_CONFIG_CONFLICT,
                  "layout = auto: no layout of %lld devices could be made into a plan",
                  (long long)p->devices);
    }
    for (int64_t i = 0; i < run->key_count; i++) all[i] = run->keys[i];
    *out = all;
    *count = run->key_count;
    search_layout taken = best->layout;
    if (st == ST_OK) st = plan_micro_batch_of(p, &taken);
    if (st == ST_OK) st = plan_layout_keys(p, &taken, all, count);
    arena_destroy(a);
    plan_close(p);
    return st;
}
