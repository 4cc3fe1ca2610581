// `bench comm`: a collective between ranks of this host, or of several hosts under a launcher, size
// by size, compared with the memory bandwidth; and the table of the fastest algorithms (--tune).
#include "cli/bench/bench.h"
#include "cli/train/ranks.h"

#include "comm/bench.h"

#include <string.h>

static status sizes_read(const char *words, comm_bench_config *f)
{
    static const int64_t usual[] = {8,         64,      1 << 10, 8 << 10,  64 << 10,
                                    256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    if (words == NULL) {
        memcpy(f->bytes, usual, sizeof(usual));
        f->count = (int)COUNT_OF(usual);
        return ST_OK;
    }
    while (*words != '\0') {
        char word[32] = "";
        const size_t length = strcspn(words, ",");
        if (length < sizeof(word)) memcpy(word, words, length);
        if (!text_parse_i64(word, &f->bytes[f->count]) || f->bytes[f->count] < 0 ||
            f->bytes[f->count] > INT64_C(1) << 33) {
            return fail(ST_USAGE,
                        "--bytes takes sizes up to 8 GiB with commas, such as 8,64KiB; found "
                        "\"%.*s\"",
                        (int)length, words);
        }
        if (++f->count == COMM_BENCH_SIZES) return fail(ST_USAGE, "--bytes has too many sizes");
        words += length + (words[length] == ',' ? 1 : 0);
    }
    return f->count > 0 ? ST_OK : fail(ST_USAGE, "--bytes is empty");
}

static status op_read(const char *word, op_collective *out)
{
    const char *names[COLLECTIVE_COUNT];
    for (int i = 0; i < COLLECTIVE_COUNT; i++) names[i] = op_collective_name((op_collective)i);
    if (op_collective_parse(word, out) && *out != COLLECTIVE_RECEIVE) return ST_OK;
    char all[256] = "";
    for (int i = 0; i < COLLECTIVE_RECEIVE; i++) {
        (void)strncat(all, i == 0 ? "" : ", ", sizeof(all) - strlen(all) - 1);
        (void)strncat(all, names[i], sizeof(all) - strlen(all) - 1);
    }
    return fail(ST_USAGE, "there is no collective \"%s\"; --op takes one of %s", word, all);
}

// ---- printing -----------------------------------------------------------------------------------
static double share_of(const comm_bench_row *row)
{
    return row->median_s > 0 ? row->limit_s / row->median_s : 0;
}

static void rows_print(cli_context *cli, const comm_bench_config *f, const comm_bench_row *rows)
{
    char size[32];
    const bool here =
        strcmp(rows[0].transport, "shm") == 0 || strcmp(rows[0].transport, "self") == 0;
    cli_print(cli, "%s of %s, %d ranks on %s over %s%s\n", op_collective_name(f->op),
              dtype_name(f->type), f->ranks, here ? "this host" : "their hosts", rows[0].transport,
              f->is_private ? ", buffers of their own" : "");
    cli_print(cli, "%10s %12s %12s %10s %10s %8s  algorithm\n", "size", "time us", "most us",
              "alg GB/s", "bus GB/s", "of limit");
    for (int i = 0; i < f->count; i++) {
        const comm_bench_row *r = &rows[i];
        const double alg = r->median_s > 0 ? (double)r->bytes / r->median_s / 1e9 : 0;
        cli_print(cli, "%10s %12.3f %12.3f %10.2f %10.2f ", text_bytes_human(r->bytes, size),
                  1e6 * r->median_s, 1e6 * r->max_s, alg, alg * r->bus);
        if (r->limit_s > 0) {
            cli_print(cli, "%7.0f%%", 100 * share_of(r));
        } else {
            cli_print(cli, "%8s", "-");
        }
        cli_print(cli, "  %s%s\n", r->algorithm,
                  r->staged ? ", staged: the buffers are not in shared memory" : "");
    }
}

static status rows_json(cli_context *cli, const comm_bench_config *f, const comm_bench_row *rows)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "["));
    for (int i = 0; i < f->count; i++) {
        const comm_bench_row *r = &rows[i];
        const double alg = r->median_s > 0 ? (double)r->bytes / r->median_s / 1e9 : 0;
        TRY(text_add(&t,
                     "%s{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %lld, \"time_us\": %.6g, "
                     "\"algbw_gb_s\": %.6g, \"busbw_gb_s\": %.6g, \"algorithm\": \"%s\", "
                     "\"transport\": \"%s\", \"dtype\": \"%s\", \"staged\": %s, \"min_us\": %.6g, "
                     "\"max_us\": %.6g, ",
                     i > 0 ? ",\n " : "", op_collective_name(f->op), f->ranks, (long long)r->bytes,
                     1e6 * r->median_s, alg, alg * r->bus, r->algorithm, r->transport,
                     dtype_name(f->type), r->staged ? "true" : "false", 1e6 * r->min_s,
                     1e6 * r->max_s));
        if (r->limit_s > 0) {
            TRY(text_add(&t, "\"limit_us\": %.6g, \"share_of_limit\": %.4g}", 1e6 * r->limit_s,
                         share_of(r)));
        } else {
            TRY(text_add(&t, "\"limit_us\": null, \"share_of_limit\": null}"));
        }
    }
    TRY(text_add(&t, "]\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- the table of choices -----------------------------------------------------------------------
enum { MAX_ALGORITHMS = 16 };

// Size by size, because an algorithm may serve small operands only; such a row has no time.
static status sizes_run(const comm_bench_config *f, comm_bench_row *rows)
{
    for (int s = 0; s < f->count; s++) {
        comm_bench_config one = *f;
        one.bytes[0] = f->bytes[s];
        one.count = 1;
        rows[s].median_s = 0;
        const status st = comm_bench_run(&one, &rows[s]);
        if (st == ST_UNSUPPORTED)
            error_clear();
        else
            TRY(st);
    }
    return ST_OK;
}

static bool is_faster(const comm_bench_row *a, const comm_bench_row *b)
{
    return a->median_s > 0 && (b->median_s <= 0 || a->median_s < b->median_s);
}

// Finds the fastest algorithm for each size and merges neighbouring sizes with the same one into a
// line.
static status op_tune(bench_context *c, comm_bench_config *f, text *t)
{
    const char *names[MAX_ALGORITHMS];
    comm_bench_row rows[MAX_ALGORITHMS][COMM_BENCH_SIZES];
    const int count = comm_bench_algorithms(f->op, f->ranks, names, MAX_ALGORITHMS);
    for (int i = 0; i < count; i++) {
        f->algorithm = names[i];
        TRY(sizes_run(f, rows[i]));
    }
    const char *last = NULL;
    for (int s = 0; s < f->count; s++) {
        int best = 0;
        for (int i = 1; i < count; i++) {
            if (is_faster(&rows[i][s], &rows[best][s])) best = i;
        }
        if (count == 0) break;
        const bool goes_on = s + 1 < f->count;
        const char *name = names[best];
        if (last != NULL && last != name) {
            TRY(text_add(t, "%s %d %lld %s\n", op_collective_name(f->op), f->ranks,
                         (long long)f->bytes[s - 1], last));
        }
        if (!goes_on) {
            TRY(text_add(t, "%s %d %lld %s\n", op_collective_name(f->op), f->ranks,
                         (long long)INT64_MAX, name));
        }
        last = name;
    }
    if (!c->flags->json) cli_print(c->cli, "%s: %d algorithms\n", op_collective_name(f->op), count);
    return ST_OK;
}

static status tune(bench_context *c, comm_bench_config *f)
{
    text t = {.a = c->cli->a};
    TRY(text_add(
        &t, "# Made by `trireme bench comm --tune`: the fastest algorithm of an operation, by\n"
            "# number of ranks and bytes of the largest operand up to which it is.\n"
            "# op ranks bytes algorithm\n"));
    for (int op = 0; op < COLLECTIVE_SEND; op++) {
        if (c->flags->op != NULL && op != (int)f->op) continue;
        f->op = (op_collective)op;
        TRY(op_tune(c, f, &t));
        if (c->flags->op != NULL) break;
    }
    return host_write_all(c->cli->h, c->flags->tune, t.bytes, t.length);
}

// Runs as one of the ranks that a launcher started, here and on other hosts.
static status run_joined(cli_context *cli, const launch_place *place, const char *transport,
                         const comm_bench_config *f, comm_bench_row *rows)
{
    cli_ranks *k = NULL;
    TRY(cli_ranks_join(cli, NULL, transport, place, &k));
    const status st = comm_bench_join(cli_ranks_comm(k), f, rows);
    cli_ranks_leave(k, st);
    return st;
}

status bench_comm(bench_context *c)
{
    comm_bench_config f = {.h = c->cli->h,
                           .ranks = (int)c->flags->ranks,
                           .type = bench_type(c->flags->dtype),
                           .algorithm = c->flags->algorithm,
                           .is_private = c->flags->is_private,
                           .stream = c->flags->stream};
    comm_bench_row rows[COMM_BENCH_SIZES];
    if (c->flags->op != NULL) TRY(op_read(c->flags->op, &f.op));
    if (f.stream && f.op != COLLECTIVE_SEND) return fail(ST_USAGE, "--stream is for --op send");
    TRY(sizes_read(c->flags->bytes, &f));
    if (f.op == COLLECTIVE_BARRIER) {
        f.count = 1;
        f.bytes[0] = 0;
    }
    launch_place place;
    TRY(cli_ranks_place(&place));
    if (c->flags->tune != NULL) return tune(c, &f);
    f.limit = true;
    if (place.ranks > 1) {
        f.ranks = place.ranks;
        TRY(run_joined(c->cli, &place, c->flags->transport, &f, rows));
        if (place.rank > 0) return ST_OK; // rank 0 prints the result
    } else {
        if (c->flags->transport != NULL) {
            return fail(ST_USAGE,
                        "--transport is for ranks that a launcher starts: mpirun -n 2 "
                        "trireme bench comm --transport %s",
                        c->flags->transport);
        }
        TRY(comm_bench_run(&f, rows));
    }
    if (c->flags->json) return rows_json(c->cli, &f, rows);
    rows_print(c->cli, &f, rows);
    return ST_OK;
}
