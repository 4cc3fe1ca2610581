// Reads values of a config.json: numbers, words and truth values, with limits. The file is
// untrusted, so every error names the file, the key, the value that was expected and the one found.
#include "model/spec_read.h"

#include <math.h>
#include <stdio.h>

// Formats a string of the file for error messages: short, and without terminal control characters.
const char *model_read_shown(const char *source, char buffer[MODEL_SHOWN_BYTES])
{
    snprintf(buffer, MODEL_SHOWN_BYTES, "%.48s", source);
    for (char *c = buffer; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    return buffer;
}

// Describes the value found, for error messages.
const char *model_read_found(const json *value, char buffer[MODEL_SHOWN_BYTES])
{
    char inner[MODEL_SHOWN_BYTES];
    switch (json_kind_of(value)) {
    case JSON_NONE:
        return "nothing";
    case JSON_NULL_VALUE:
        return "null";
    case JSON_BOOL:
        return json_bool(value, false) ? "true" : "false";
    case JSON_INT:
        snprintf(buffer, MODEL_SHOWN_BYTES, "%lld", (long long)json_int(value, 0));
        return buffer;
    case JSON_REAL:
        snprintf(buffer, MODEL_SHOWN_BYTES, "%.17g", json_real(value, 0.0));
        return buffer;
    case JSON_TEXT:
        snprintf(buffer, MODEL_SHOWN_BYTES, "\"%.56s\"",
                 model_read_shown(json_text(value, ""), inner));
        return buffer;
    case JSON_LIST:
        snprintf(buffer, MODEL_SHOWN_BYTES, "a list of %lld", (long long)json_count(value));
        return buffer;
    case JSON_MAP:
    default:
        return "a map";
    }
}

status model_read_wrong(const model_reader *r, const char *key, const json *value,
                        const char *expected)
{
    char buffer[MODEL_SHOWN_BYTES];
    return fail(ST_MODEL, "%s: \"%s\": expected %s, found %s", r->file, key, expected,
                model_read_found(value, buffer));
}

bool model_read_given(const json *value)
{
    return value != NULL && json_kind_of(value) != JSON_NULL_VALUE;
}

status model_read_int_value(const model_reader *r, const char *key, const json *value,
                            model_limits limits, int64_t *out)
{
    const double real = json_real(value, MODEL_ABSENT);
    const bool is_number = json_kind_of(value) == JSON_INT || json_kind_of(value) == JSON_REAL;
    if (!is_number || real != floor(real) || real < (double)limits.min ||
        real > (double)limits.max) {
        char expected[96];
        snprintf(expected, sizeof(expected), "a whole number from %lld to %lld",
                 (long long)limits.min, (long long)limits.max);
        return model_read_wrong(r, key, value, expected);
    }
    *out = (int64_t)real;
    return ST_OK;
}

// Absent or null: returns `otherwise` if it is not negative, else refuses.
status model_read_int(const model_reader *r, const char *key, model_limits limits,
                      int64_t otherwise, int64_t *out)
{
    const json *value = json_get(r->root, key);
    if (!model_read_given(value) && otherwise >= 0) {
        *out = otherwise;
        return ST_OK;
    }
    return model_read_int_value(r, key, value, limits, out);
}

// A NaN `otherwise` makes the key required.
status model_read_real(const model_reader *r, const json *map, const char *key,
                       double_limits limits, double otherwise, double *out)
{
    const json *value = json_get(map, key);
    if (!model_read_given(value) && !isnan(otherwise)) {
        *out = otherwise;
        return ST_OK;
    }
    const double real =
        json_real(value, MODEL_ABSENT); // NaN: not a number; it fails both comparisons
    if (!(real >= limits.min && real <= limits.max)) {
        char expected[96];
        snprintf(expected, sizeof(expected), "a number from %g to %g", limits.min, limits.max);
        return model_read_wrong(r, key, value, expected);
    }
    *out = real;
    return ST_OK;
}

status model_read_float(const model_reader *r, const char *key, double most, double otherwise,
                        float *out)
{
    double value = 0.0;
    TRY(model_read_real(r, r->root, key, (double_limits){0.0, most}, otherwise, &value));
    *out = (float)value;
    return ST_OK;
}

status model_read_bool(const model_reader *r, const json *map, const char *key, bool otherwise,
                       bool *out)
{
    const json *value = json_get(map, key);
    if (model_read_given(value) && json_kind_of(value) != JSON_BOOL) {
        return model_read_wrong(r, key, value, "true or false");
    }
    *out = json_bool(value, otherwise);
    return ST_OK;
}
