// `simulate` with `layout: auto`: takes the layout that the planner finds fastest on the cluster.
// If none fits, it takes the smallest, because `simulate` reports the size of every run.
#include "cli/plan/plan.h"

status plan_chosen(cli_context *cli, const simulate_request *run, const config *c,
                   run_config *given, const char ***out, int64_t *count)
{
    planning *x = NULL;
    const char **all = NULL;
    search_layout best = {.dp = 0};
    cli_progress *progress = NULL;
    TRY(arena_new(cli->a, 1, &x));
    TRY(arena_new(cli->a, run->key_count + PLAN_LAYOUT_KEYS, &all));
    TRY(plan_open(cli, run->operand, run->cluster, run->keys, run->key_count, x));
    cli_progress_begin(cli, "layout: auto", &progress);
    plan_watch(&x->p, progress);
    // The file's micro-batches and recomputation apply too.
    status st = plan_fix(c, given, &x->p.fixed);
    if (st == ST_OK) st = predict_best_layout(&x->p, &best);
    cli_progress_end(progress);
    for (int64_t i = 0; i < run->key_count; i++) all[i] = run->keys[i];
    *out = all;
    *count = run->key_count;
    if (st == ST_OK) st = plan_layout_keys(&x->p, &best, all, count);
    plan_close(x);
    return st;
}
