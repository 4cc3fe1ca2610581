// Reads rotary positions from a config.json: the base, the kind of context extension and its
// numbers (Su et al. 2021, arXiv:2104.09864; rope.c has the sources of the extensions).
#include "base/text.h"
#include "model/spec_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static status rope_kind_read(const model_reader *r, const json *map, model_rope *rope)
{
    const char *key = json_get(map, "rope_type") != NULL ? "rope_type" : "type";
    const json *type = json_get(map, key);
    if (type == NULL) {
        if (json_get(map, "factor") != NULL) {
            return model_read_wrong(r, "rope_type", type, "a string, since there is a \"factor\"");
        }
        return ST_OK; // only theta is given: default kind
    }
    if (json_kind_of(type) != JSON_TEXT) return model_read_wrong(r, key, type, "a string");
    const char *name = json_text(type, "");
    if (strcmp(name, "su") == 0) name = "longrope"; // its former name
    int64_t known = 0;
    for (; model_rope_names[known] != NULL; known++) {
        if (strcmp(name, model_rope_names[known]) != 0) continue;
        rope->kind = (model_rope_kind)known;
        return ST_OK;
    }
    char buffer[MODEL_SHOWN_BYTES];
    const char *near = text_nearest(name, model_rope_names, known);
    return fail(ST_MODEL,
                "%s: \"%s\": unknown \"%s\"%s%s; known: default, linear, dynamic, llama3, "
                "yarn, longrope",
                r->file, key, model_read_shown(name, buffer), near == NULL ? "" : ", did you mean ",
                near == NULL ? "" : near);
}

static status factors_read(const model_reader *r, const json *map, const char *key, int64_t count,
                           const double **out)
{
    const json *list = json_get(map, key);
    if (json_kind_of(list) != JSON_LIST || json_count(list) != count) {
        char expected[64];
        snprintf(expected, sizeof(expected), "a list of %lld numbers, one for each pair",
                 (long long)count);
        return model_read_wrong(r, key, list, expected);
    }
    double *values = NULL;
    TRY(arena_new(r->a, count, &values));
    for (int64_t i = 0; i < count; i++) {
        values[i] = json_real(json_at(list, i), MODEL_ABSENT);
        if (!(values[i] > 0.0 && values[i] <= 1e9)) {
            return model_read_wrong(r, key, json_at(list, i), "numbers above 0 and at most 1e9");
        }
    }
    *out = values;
    return ST_OK;
}

static status rope_options_read(const model_reader *r, const json *map, const decoder_spec *s,
                                model_rope *rope)
{
    const struct {
        const char *key;
        double *out;
    } optional[] = {
        {"factor", &rope->factor},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
    };
    for (int64_t i = 0; i < COUNT_OF(optional); i++) {
        if (!model_read_given(json_get(map, optional[i].key))) continue;
        TRY(model_read_real(r, map, optional[i].key, (double_limits){0.0, 1e9}, MODEL_ABSENT,
                            optional[i].out));
    }
    const char *original = "original_max_position_embeddings";
    const json *context = json_get(map, original);
    if (!model_read_given(context)) context = json_get(r->root, original); // the key of Phi models
    rope->original_context = r->arch->original_context;
    if (model_read_given(context)) {
        TRY(model_read_int_value(r, original, context, model_limits_context,
                                 &rope->original_context));
    }
    TRY(model_read_bool(r, map, "truncate", true, &rope->truncate));
    if (rope->kind != MODEL_ROPE_LONGROPE) return ST_OK;
    TRY(factors_read(r, map, "short_factor", model_rope_dim(s) / 2, &rope->short_factor));
    return factors_read(r, map, "long_factor", model_rope_dim(s) / 2, &rope->long_factor);
}

// Reads the base of layers with a window, from their own set of options or from a key of the root.
// These layers extend no context.
static status local_read(const model_reader *r, const json *map, decoder_spec *s)
{
    const char *key = r->arch->keys->rope_local_theta;
    const json *of = r->root;
    if (map != NULL) {
        if (json_kind_of(map) != JSON_MAP) return model_read_wrong(r, key, map, "a map");
        const char *type = json_text(json_get(map, "rope_type"), "default");
        if (strcmp(type, "default") != 0) {
            return model_read_wrong(r, "rope_type", json_get(map, "rope_type"),
                                    "\"default\", the only value that is supported for layers with "
                                    "a window");
        }
        of = map;
        key = "rope_theta";
    }
    return model_read_real(r, of, key, (double_limits){1.0, 1e15}, r->arch->rope_local_theta,
                           &s->rope_local_theta);
}

const char *model_rope_key(const model_reader *r)
{
    return model_read_given(json_get(r->root, "rope_scaling")) ? "rope_scaling" : "rope_parameters";
}

status model_rope_read(const model_reader *r, decoder_spec *s)
{
    s->rope = model_rope_default();
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    const char *key = model_rope_key(r);
    const json *map = json_get(r->root, key);
    if (model_read_given(map) && json_kind_of(map) != JSON_MAP)
        return model_read_wrong(r, key, map, "a map or null");
    if (r->arch->keys->rope_local_theta != NULL) {
        const json *full = json_get(map, "full_attention");
        TRY(local_read(r, full != NULL ? json_get(map, "sliding_attention") : NULL, s));
        if (full != NULL) map = full;
        if (json_kind_of(map) != JSON_MAP && model_read_given(map)) {
            return model_read_wrong(r, key, map, "a map or null");
        }
    }
    const json *theta_of = model_read_given(json_get(map, "rope_theta")) ? map : r->root;
    const double usual = r->arch->rope_theta > 0.0 ? r->arch->rope_theta : s->rope.theta;
    TRY(model_read_real(r, theta_of, "rope_theta", (double_limits){1.0, 1e15}, usual,
                        &s->rope.theta));
    if (!model_read_given(map)) return ST_OK;
    for (int64_t i = 0; i < json_count(map); i++) {
        const json *value = NULL;
        const char *name = json_key_at(map, i, &value);
        if (json_kind_of(value) == JSON_MAP) {
            char buffer[MODEL_SHOWN_BYTES];
            return fail(ST_MODEL, "%s: \"%s\": expected one set of options, found one for \"%s\"",
                        r->file, key, model_read_shown(name, buffer));
        }
    }
    TRY(model_read_refuse(r, map));
    TRY(rope_kind_read(r, map, &s->rope));
    if (s->rope.kind == MODEL_ROPE_DEFAULT) return ST_OK;
    return rope_options_read(r, map, s, &s->rope);
}
