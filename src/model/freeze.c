// Selects the weights that are trained. train.freeze lists name patterns in shell syntax; a weight
// that matches one of them keeps its values. A fused weight (q, k and v) is one matrix for its
// gradient, so it is frozen as a whole: by its own name, or by patterns for all of its parts.
#include "model/block/block.h"

#include <fnmatch.h>
#include <stdio.h>

enum { NAME_BYTES = 128 };

static bool matches(const option_list *patterns, const char *prefix, const char *name)
{
    char whole[NAME_BYTES];
    (void)snprintf(whole, sizeof(whole), "%s%s", prefix, name);
    for (int64_t i = 0; i < patterns->count; i++) {
        if (fnmatch(patterns->items[i], whole, 0) == 0) return true;
    }
    return false;
}

bool model_freeze_matches(const option_list *patterns, const char *name)
{
    return matches(patterns, "", name);
}

status model_freeze_weight(const block_context *c, const char *prefix, const block_weight *w,
                           bool *frozen)
{
    const option_list *patterns = &c->options->freeze;
    *frozen = false;
    if (w->history) return ST_OK; // a block declares one only where magnitudes are counted
    *frozen = w->fixed || (c->spec->adapter.rank > 0 && !w->adapter);
    if (patterns->count == 0 || *frozen) return ST_OK;
    if (w->shared != NULL) {
        *frozen = matches(patterns, "", w->shared);
        return ST_OK;
    }
    if (w->of_model) prefix = "";
    if (matches(patterns, prefix, w->name)) {
        *frozen = true;
        return ST_OK;
    }
    const char *in = NULL, *out = NULL;
    for (int i = 0; i < w->part_count; i++) {
        const bool is_in = matches(patterns, prefix, w->parts[i].name);
        *(is_in ? &in : &out) = w->parts[i].name;
    }
    if (in != NULL && out != NULL) {
        return fail(
            ST_CONFIG_CONFLICT,
            "train.freeze matches %s%s but not %s%s, and both are parts of the matrix %s%s, "
            "which is trained as a whole; match all of its parts or none",
            prefix, in, prefix, out, prefix, w->name);
    }
    *frozen = in != NULL;
    return ST_OK;
}

// A pattern without a match is a mistake: the user believes that it freezes a weight.
static status pattern_check(const op_model *m, const char *pattern)
{
    for (int64_t i = 0; i < m->weight_count; i++) {
        const op_weight *w = &m->weights[i];
        if (w->is_history) continue;
        if (fnmatch(pattern, w->name, 0) == 0) return ST_OK;
        for (int k = 0; k < w->part_count; k++) {
            if (fnmatch(pattern, w->parts[k].name, 0) == 0) return ST_OK;
        }
    }
    return fail(ST_CONFIG_RANGE,
                "train.freeze: no weight of the model has a name like \"%s\"; names are such as "
                "%s and %s",
                pattern, m->weights[0].name, m->weights[m->weight_count / 2].name);
}

status model_freeze_check(const op_model *m, const option_list *patterns)
{
    for (int64_t i = 0; i < patterns->count; i++) TRY(pattern_check(m, patterns->items[i]));
    for (int64_t i = 0; i < m->weight_count; i++) {
        if (!m->weights[i].frozen && !m->weights[i].is_history) return ST_OK;
    }
    return fail(ST_CONFIG_CONFLICT, "train.freeze matches every weight: nothing is left to train");
}
