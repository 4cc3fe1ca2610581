// `bench --baseline FILE`: compares with an earlier measurement, which --json printed to FILE.
//
// The command reads FILE before it measures, so that a wrong name costs no minutes.
#include "cli/bench/bench.h"

#include "base/format/json.h"

#include <stdio.h>
#include <string.h>

enum { BASELINE_LIMIT_BYTES = 16 << 20 };

// The median of the row with that name; 0 if there is none. A file of `step` or `generate` has one
// row.
static double median_of(const json *earlier, const char *name)
{
    const json *rows = json_get(earlier, "rows");
    char key[64];
    (void)snprintf(key, sizeof(key), "%s_s", name);
    if (rows == NULL) return json_real(json_get(earlier, key), 0.0);
    for (int64_t i = 0; i < json_count(rows); i++) {
        const json *row = json_at(rows, i);
        if (strcmp(json_text(json_get(row, "name"), ""), name) == 0) {
            return json_real(json_get(row, "median_s"), 0.0);
        }
    }
    return 0.0;
}

status bench_compare(const bench_context *c, const char *what, const bench_row *rows, int64_t count)
{
    const json *earlier = c->baseline;
    if (earlier == NULL) return ST_OK;
    const char *path = c->flags->baseline;
    const double limit = 1.0 + c->flags->tolerance / 100.0;
    const char *was_of = json_text(json_get(earlier, "what"), what);
    if (strcmp(was_of, what) != 0) {
        return fail(ST_USAGE,
                    "%s measured \"%s\", but this run measures \"%s\": give the same flags", path,
                    was_of, what);
    }
    const bench_row *worst = NULL;
    double worst_ratio = 0.0, worst_was = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double was = median_of(earlier, rows[i].name);
        if (!(was > 0.0)) {
            return fail(ST_DAMAGED, "%s has no median of \"%s\"; make it with --json", path,
                        rows[i].name);
        }
        const double ratio = rows[i].median_s / was;
        if (worst != NULL && ratio <= worst_ratio) continue;
        worst = &rows[i];
        worst_ratio = ratio;
        worst_was = was;
    }
    if (worst == NULL || worst_ratio <= limit) return ST_OK;
    return fail(ST_ANSWER_NO,
                "%s is slower than %s: %.4g s instead of %.4g s (%.2f times; %.0f%% are allowed)",
                worst->name, path, worst->median_s, worst_was, worst_ratio, c->flags->tolerance);
}

status bench_baseline_read(bench_context *c, const char *bench)
{
    const char *path = c->flags->baseline;
    json *earlier = NULL;
    if (path == NULL) return ST_OK;
    TRY(json_read(c->cli->h, path, BASELINE_LIMIT_BYTES, &earlier));
    const char *of = json_text(json_get(earlier, "bench"), bench);
    if (strcmp(of, bench) == 0) {
        c->baseline = earlier;
        return ST_OK;
    }
    const status st =
        fail(ST_USAGE, "%s comes from \"bench %s\", not from \"bench %s\"", path, of, bench);
    json_free(earlier);
    return st;
}
