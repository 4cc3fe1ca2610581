// Pure functions: they read a configuration, facts about data and machine, and losses.
#include "train/advice.h"

#include <math.h>

static status warmup_advise(const run_config *r, text *lines)
{
    const int64_t warmup = r->schedule.warmup, steps = r->train.steps;
    if (warmup <= steps) return ST_OK;
    return text_add(lines,
                    "schedule.warmup = %lld is longer than the run (train.steps = %lld): the "
                    "learning rate never reaches optimizer.lr = %g; take a schedule.warmup such as "
                    "%lld, or more steps\n",
                    (long long)warmup, (long long)steps, r->optimizer.lr,
                    (long long)max_i64(steps / 20, 1));
}

static status epochs_advise(const run_config *r, int64_t tokens, text *lines)
{
    enum { MANY_EPOCHS = 100 };
    const double planned =
        (double)r->train.steps * (double)r->train.global_batch * (double)r->train.seq;
    if (run_config_has_rollouts(r)) return ST_OK;
    if (tokens <= 0 || planned / (double)tokens <= MANY_EPOCHS) return ST_OK;
    return text_add(lines,
                    "train.steps = %lld reads the text of data.train %.0f times (epochs), so the "
                    "model learns it by heart; take fewer train.steps, or more text\n",
                    (long long)r->train.steps, planned / (double)tokens);
}

static status threads_advise(const run_config *r, const train_facts *f, text *lines)
{
    if (r->kernels.threads <= 0 || f->cores <= 0) return ST_OK;
    const int64_t all = (int64_t)f->threads * max_i64(f->ranks, 1);
    if (all <= f->cores) return ST_OK;
    TRY(text_add(lines, "kernels.threads = %lld", (long long)r->kernels.threads));
    if (f->ranks > 1) TRY(text_add(lines, " on each of %d ranks", f->ranks));
    const int64_t fit = max_i64(f->cores / max_i64(f->ranks, 1), 1);
    TRY(text_add(lines,
                 " is more threads than cores, of which this host has %d: they take turns and "
                 "slow each other; take ",
                 f->cores));
    if (fit == r->kernels.threads) return text_add(lines, "fewer ranks\n");
    return text_add(lines, "kernels.threads=%lld\n", (long long)fit);
}

static status fp8_advise(const run_config *r, const train_facts *f, text *lines)
{
    if (r->train.precision != RUN_FP8 || !f->rounds_fp8) return ST_OK;
    return text_add(lines,
                    "train.precision = fp8: this GPU and its cuBLASLt have no products in 8 "
                    "bits for precision.fp8 = %s, so operands are rounded to 8 bits and "
                    "multiplied in bf16, which is not faster than bf16\n",
                    r->precision.fp8 == RUN_FP8_TENSOR ? "tensor" : "block");
}

status train_advice(const run_config *r, const train_facts *facts, text *lines)
{
    TRY(warmup_advise(r, lines));
    TRY(epochs_advise(r, facts->tokens, lines));
    TRY(fp8_advise(r, facts, lines));
    return threads_advise(r, facts, lines);
}

// An untrained model is a little worse than guessing, and its first losses differ by chance; so a
// loss must exceed both by a margin, several times in a row, or clearly at the end.
bool train_guessing_see(train_guessing *g, int64_t vocab, double loss, bool is_last)
{
    enum { IN_A_ROW = 4 };
    static const double margin = 0.05, clear_margin = 0.5;
    if (g->told || vocab < 2 || !isfinite(loss)) return false;
    if (g->steps++ == 0) {
        g->limit = fmax(log((double)vocab), loss);
        return false;
    }
    g->above = loss > g->limit + margin ? g->above + 1 : 0;
    g->told = g->above >= IN_A_ROW || (is_last && loss > g->limit + clear_margin);
    return g->told;
}
