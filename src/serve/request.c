// Members are checked against a table of those that are known; then each is read by its name.
#include "serve/request.h"
#include "serve/serve_internal.h"

#include <math.h>
#include <string.h>

typedef struct reading {
    const serve_model *m;
    arena *a;
    const json *root;
    serve_request *r;
} reading;

static status refuse(reading *v, int code, const char *member)
{
    v->r->code = code;
    v->r->member = member;
    return ST_DATA;
}
#define REFUSE(v, code, member, ...) \
    ((void)fail(ST_DATA, __VA_ARGS__), refuse((v), (code), (member)))

static bool is_given(const json *value)
{
    return value != NULL && json_kind_of(value) != JSON_NULL_VALUE;
}

// A text that may hold NUL equals one that does not.
static bool is_text(const json *value, const char *wanted)
{
    return json_kind_of(value) == JSON_TEXT && json_text_bytes(value) == (int64_t)strlen(wanted) &&
           strcmp(json_text(value, ""), wanted) == 0;
}

// ---- members that are known ---------------------------------------------------------------------

typedef enum member_use {
    USED,      // read below
    INFORMS,   // changes nothing in the answer
    MUST_BE_0, // not supported: refused unless it is 0, false or empty
} member_use;
enum { COMPLETIONS = 1, CHAT = 2, BOTH = 3 };

static const struct {
    const char *name;
    member_use use;
    int routes;
} members[] = {
    {"model", USED, BOTH},
    {"prompt", USED, COMPLETIONS},
    {"messages", USED, CHAT},
    {"max_tokens", USED, BOTH},
    {"max_completion_tokens", USED, CHAT},
    {"temperature", USED, BOTH},
    {"top_p", USED, BOTH},
    {"top_k", USED, BOTH},
    {"min_p", USED, BOTH},
    {"seed", USED, BOTH},
    {"n", USED, BOTH},
    {"stop", USED, BOTH},
    {"stream", USED, BOTH},
    {"stream_options", USED, BOTH},
    {"response_format", USED, CHAT},
    {"user", INFORMS, BOTH},
    {"metadata", INFORMS, BOTH},
    {"store", INFORMS, BOTH},
    {"safety_identifier", INFORMS, BOTH},
    {"service_tier", INFORMS, BOTH},
    {"prompt_cache_key", INFORMS, BOTH},
    {"best_of", USED, BOTH},
    {"choose", USED, BOTH},
    {"echo", MUST_BE_0, COMPLETIONS},
    {"suffix", MUST_BE_0, COMPLETIONS},
    {"logprobs", USED, BOTH},
    {"top_logprobs", USED, CHAT},
    {"frequency_penalty", MUST_BE_0, BOTH},
    {"presence_penalty", MUST_BE_0, BOTH},
    {"logit_bias", MUST_BE_0, BOTH},
    {"tools", MUST_BE_0, CHAT},
    {"functions", MUST_BE_0, CHAT},
};

static bool is_nothing(const json *value)
{
    switch (json_kind_of(value)) {
    case JSON_NONE:
    case JSON_NULL_VALUE:
        return true;
    case JSON_BOOL:
        return !json_bool(value, false);
    case JSON_INT:
    case JSON_REAL:
        return json_real(value, 1.0) == 0.0;
    case JSON_TEXT:
        return json_text_bytes(value) == 0;
    case JSON_LIST:
    case JSON_MAP:
        return json_count(value) == 0;
    }
    return false;
}

static status check_members(reading *v)
{
    const int route = v->r->chat ? CHAT : COMPLETIONS;
    for (int64_t i = 0; i < json_count(v->root); i++) {
        const json *value = NULL;
        const char *name = json_key_at(v->root, i, &value);
        int64_t at = 0;
        while (at < COUNT_OF(members) && strcmp(members[at].name, name) != 0) at++;
        if (at == COUNT_OF(members) || (members[at].routes & route) == 0) {
            return REFUSE(v, 400, name, "\"%.60s\" is no member of this request that is supported",
                          name);
        }
        if (members[at].use == MUST_BE_0 && !is_nothing(value)) {
            return REFUSE(v, 400, name, "\"%s\" is not supported", name);
        }
    }
    return ST_OK;
}

// ---- values -------------------------------------------------------------------------------------

static status read_real(reading *v, const char *name, double least, double most, double *out)
{
    const json *value = json_get(v->root, name);
    if (!is_given(value)) return ST_OK;
    const double x = json_real(value, (double)NAN);
    if (!(x >= least && x <= most)) {
        return REFUSE(v, 400, name, "\"%s\" is not a number from %g to %g", name, least, most);
    }
    *out = x;
    return ST_OK;
}

static status read_int(reading *v, const char *name, int64_t least, int64_t most, int64_t *out)
{
    const json *value = json_get(v->root, name);
    if (!is_given(value)) return ST_OK;
    const int64_t x = json_int(value, least - 1);
    if (x < least || x > most) {
        return REFUSE(v, 400, name, "\"%s\" is not a whole number from %lld to %lld", name,
                      (long long)least, (long long)most);
    }
    *out = x;
    return ST_OK;
}

static status read_bool(reading *v, const char *name, const json *value, bool *out)
{
    if (!is_given(value)) return ST_OK;
    if (json_kind_of(value) != JSON_BOOL) {
        return REFUSE(v, 400, name, "\"%s\" is not true or false", name);
    }
    *out = json_bool(value, false);
    return ST_OK;
}

static status read_stop(reading *v, const json *value)
{
    const char *stop = json_text(value, NULL);
    const int64_t bytes = stop != NULL ? json_text_bytes(value) : 0;
    if (stop == NULL || bytes == 0 || bytes > 4096 || (int64_t)strlen(stop) != bytes) {
        return REFUSE(v, 400, "stop",
                      "\"stop\" is not a text of 1 to 4096 bytes without NUL, or a "
                      "list of such texts");
    }
    if (v->r->stop_count == SERVE_STOPS_MAX) {
        return REFUSE(v, 400, "stop", "\"stop\" has more than %d texts", (int)SERVE_STOPS_MAX);
    }
    char *copy = NULL;
    TRY(arena_strdup(v->a, stop, &copy));
    v->r->stops[v->r->stop_count++] = copy;
    return ST_OK;
}

static status read_stops(reading *v)
{
    const json *value = json_get(v->root, "stop");
    if (!is_given(value)) return ST_OK;
    if (json_kind_of(value) != JSON_LIST) return read_stop(v, value);
    for (int64_t i = 0; i < json_count(value); i++) TRY(read_stop(v, json_at(value, i)));
    return ST_OK;
}

// Completions have the number of tokens, chat a truth value and the number apart.
static status read_likely(reading *v)
{
    serve_request *r = v->r;
    bool wanted = false;
    if (!r->chat) {
        TRY(read_int(v, "logprobs", 0, SERVE_LIKELY_MAX, &r->likely));
    } else {
        TRY(read_bool(v, "logprobs", json_get(v->root, "logprobs"), &wanted));
        if (wanted) r->likely = 0;
        const bool more = is_given(json_get(v->root, "top_logprobs"));
        if (more && !wanted) {
            return REFUSE(v, 400, "top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
        }
        TRY(read_int(v, "top_logprobs", 0, SERVE_LIKELY_MAX, &r->likely));
    }
    r->likely = min_i64(r->likely, infer_spec(v->m->g)->vocab);
    return ST_OK;
}

// Which of several sequences are the answer.
static status read_choices(reading *v)
{
    serve_request *r = v->r;
    const json *choose = json_get(v->root, "choose");
    TRY(read_int(v, "n", 1, SERVE_CHOICES_MAX, &r->choices));
    r->drawn = r->choices;
    TRY(read_int(v, "best_of", 1, SERVE_CHOICES_MAX, &r->drawn));
    if (r->drawn < r->choices) {
        return REFUSE(v, 400, "best_of", "\"best_of\" is less than \"n\"");
    }
    if (r->drawn > r->choices && r->stream) {
        return REFUSE(v, 400, "best_of", "a stream cannot wait for the best of \"best_of\" texts");
    }
    r->by_majority = is_text(choose, "majority");
    if (r->by_majority || !is_given(choose) || is_text(choose, "likely")) return ST_OK;
    return REFUSE(v, 400, "choose", "\"choose\" is not \"likely\" or \"majority\"");
}

static status read_stream_options(reading *v)
{
    const json *value = json_get(v->root, "stream_options");
    if (!is_given(value)) return ST_OK;
    for (int64_t i = 0; i < json_count(value); i++) {
        const json *one = NULL;
        if (json_kind_of(value) == JSON_MAP &&
            strcmp(json_key_at(value, i, &one), "include_usage") == 0) {
            continue;
        }
        return REFUSE(v, 400, "stream_options",
                      "\"stream_options\" holds something else than \"include_usage\"");
    }
    if (json_kind_of(value) != JSON_MAP || !v->r->stream) {
        return REFUSE(v, 400, "stream_options",
                      "\"stream_options\" is not an object, or \"stream\" is not true");
    }
    return read_bool(v, "stream_options.include_usage", json_get(value, "include_usage"),
                     &v->r->usage);
}

static status read_format(reading *v)
{
    const json *value = json_get(v->root, "response_format");
    if (!is_given(value) || is_text(json_get(value, "type"), "text")) return ST_OK;
    return REFUSE(v, 400, "response_format",
                  "\"response_format\" other than {\"type\": \"text\"} is not supported");
}

static status read_options(reading *v)
{
    serve_request *r = v->r;
    int64_t seed = 0;
    TRY(read_int(v, "max_tokens", 1, 1 << 24, &r->max_tokens));
    TRY(read_int(v, "max_completion_tokens", 1, 1 << 24, &r->max_tokens));
    TRY(read_real(v, "temperature", 0.0, 100.0, &r->sampling.temperature));
    TRY(read_real(v, "top_p", 1e-9, 1.0, &r->sampling.top_p));
    TRY(read_real(v, "min_p", 0.0, 1.0, &r->sampling.min_p));
    TRY(read_int(v, "top_k", 0, 1 << 24, &r->sampling.top_k));
    TRY(read_int(v, "seed", 0, INT64_MAX / 2, &seed));
    r->seeded = is_given(json_get(v->root, "seed"));
    r->sampling.seed = (uint64_t)seed;
    TRY(read_bool(v, "stream", json_get(v->root, "stream"), &r->stream));
    TRY(read_choices(v));
    TRY(read_likely(v));
    TRY(read_stream_options(v));
    TRY(read_format(v));
    return read_stops(v);
}

// ---- prompts ------------------------------------------------------------------------------------

static status fits(reading *v, int64_t count)
{
    const int64_t left = v->m->context - count;
    if (count == 0) return REFUSE(v, 400, "prompt", "a prompt has no token");
    if (left < 1 || v->r->max_tokens > left) {
        return REFUSE(v, 400, v->r->chat ? "messages" : "prompt",
                      "the prompt has %lld tokens and %lld new ones were asked for; a sequence has "
                      "%lld at most",
                      (long long)count, (long long)max_i64(1, v->r->max_tokens),
                      (long long)v->m->context);
    }
    return ST_OK;
}

static status prompt_text(reading *v, const json *value)
{
    data_ids *ids = &v->r->prompts[v->r->prompt_count++];
    TRY(data_tokenizer_encode(v->m->tokenizer, json_text(value, ""), json_text_bytes(value),
                              data_tokenizer_flags(v->m->tokenizer), ids));
    return fits(v, ids->count);
}

static status prompt_ids(reading *v, const json *list)
{
    data_ids *ids = &v->r->prompts[v->r->prompt_count++];
    const int64_t vocab = infer_spec(v->m->g)->vocab;
    TRY(fits(v, json_count(list))); // before they are read
    for (int64_t i = 0; i < json_count(list); i++) {
        const int64_t id = json_int(json_at(list, i), -1);
        if (id < 0 || id >= vocab) {
            return REFUSE(v, 400, "prompt",
                          "a token of \"prompt\" is not a whole number from 0 to "
                          "%lld",
                          (long long)vocab - 1);
        }
        const int32_t id32 = (int32_t)id;
        TRY(data_ids_add(ids, &id32, 1));
    }
    return ST_OK;
}

// A text, a list of texts, a list of ids, or a list of lists of ids.
static status read_prompts(reading *v)
{
    const json *value = json_get(v->root, "prompt");
    const bool is_list = json_kind_of(value) == JSON_LIST;
    const json_kind kind = is_list ? json_kind_of(json_at(value, 0)) : JSON_NONE;
    const bool is_one = !is_list || (kind != JSON_TEXT && kind != JSON_LIST);
    const int64_t count = is_one ? 1 : json_count(value);
    if (count * v->r->drawn > SERVE_CHOICES_MAX) {
        return REFUSE(v, 400, "prompt", "more than %d texts are asked for", (int)SERVE_CHOICES_MAX);
    }
    TRY(arena_new(v->a, count, &v->r->prompts));
    for (int64_t i = 0; i < count; i++) {
        const json *item = is_one ? value : json_at(value, i);
        if (json_kind_of(item) == JSON_TEXT) {
            TRY(prompt_text(v, item));
        } else if (json_kind_of(item) == JSON_LIST) {
            TRY(prompt_ids(v, item));
        } else {
            return REFUSE(v, 400, "prompt",
                          "\"prompt\" is not a text, a list of texts, a list of "
                          "tokens or a list of lists of tokens");
        }
    }
    return ST_OK;
}

// A message's content as one text: a text, or a list of parts of type text.
static status add_content(reading *v, text *t, const json *content)
{
    text all = {.a = v->a};
    TRY(text_add(&all, "%s", ""));
    if (json_kind_of(content) == JSON_TEXT) {
        TRY(text_add_bytes(&all, json_text(content, ""), json_text_bytes(content)));
    } else {
        bool are_texts = json_kind_of(content) == JSON_LIST;
        for (int64_t i = 0; i < json_count(content) && are_texts; i++) {
            const json *part = json_get(json_at(content, i), "text");
            are_texts = json_kind_of(part) == JSON_TEXT;
            TRY(text_add_bytes(&all, json_text(part, ""), json_text_bytes(part)));
        }
        if (!are_texts) {
            return REFUSE(v, 400, "messages",
                          "a message's \"content\" is not a text or a list of "
                          "parts of type text");
        }
    }
    return text_add_json_bytes(t, all.bytes, all.length);
}

static status add_message(reading *v, text *t, const json *message)
{
    const json *role = json_get(message, "role");
    if (json_kind_of(role) != JSON_TEXT)
        return REFUSE(v, 400, "messages", "a message has no \"role\"");
    for (int64_t i = 0; i < json_count(message); i++) {
        const json *value = NULL;
        const char *name = json_key_at(message, i, &value);
        if (strcmp(name, "role") != 0 && strcmp(name, "content") != 0 && is_given(value)) {
            return REFUSE(v, 400, "messages", "\"%.60s\" of a message is not supported", name);
        }
    }
    TRY(text_add(t, "%s{\"role\": ", t->length > 0 ? ", " : "["));
    TRY(text_add_json_bytes(t, json_text(role, ""), json_text_bytes(role)));
    TRY(text_add(t, ", \"content\": "));
    TRY(add_content(v, t, json_get(message, "content")));
    return text_add(t, "}");
}

static status read_messages(reading *v)
{
    const json *messages = json_get(v->root, "messages");
    text t = {.a = v->a}, asked;
    json *plain = NULL;
    if (v->m->chat == NULL) {
        return REFUSE(v, 400, NULL,
                      "the model was served without a chat template; use "
                      "/v1/completions");
    }
    if (json_kind_of(messages) != JSON_LIST || json_count(messages) == 0) {
        return REFUSE(v, 400, "messages",
                      "\"messages\" is not a list of messages with at least one");
    }
    for (int64_t i = 0; i < json_count(messages); i++) {
        TRY(add_message(v, &t, json_at(messages, i)));
    }
    TRY(text_add(&t, "]"));
    TRY(json_parse(t.bytes, t.length, "the messages", &plain));
    const status st = data_chat_ask(v->m->chat, v->a, plain, &asked);
    json_free(plain);
    if (st == ST_DATA) return refuse(v, 400, "messages"); // what the template raised
    TRY(st);
    TRY(arena_new(v->a, 1, &v->r->prompts));
    v->r->prompt_count = 1;
    TRY(data_tokenizer_encode(v->m->tokenizer, asked.bytes, asked.length, DATA_ENCODE_SPECIAL,
                              &v->r->prompts[0]));
    return fits(v, v->r->prompts[0].count);
}

static status read_model(reading *v)
{
    const json *model = json_get(v->root, "model");
    const char *name = json_text(model, NULL);
    if (name == NULL)
        return REFUSE(v, 400, "model", "\"model\" is missing; it is \"%s\"", v->m->name);
    const int64_t number = is_text(model, name) ? serve_model_number(v->m, name) : -1;
    v->r->adapter = number >= SERVE_ADAPTERS ? number - SERVE_ADAPTERS : -1;
    if (number >= 0) return ST_OK;
    return REFUSE(v, 404, "model", "there is no model \"%.100s\"; it is \"%s\"", name, v->m->name);
}

static status read_all(reading *v)
{
    if (json_kind_of(v->root) != JSON_MAP) {
        return REFUSE(v, 400, NULL, "the request is not a JSON object");
    }
    TRY(check_members(v));
    TRY(read_model(v));
    TRY(read_options(v));
    return v->r->chat ? read_messages(v) : read_prompts(v);
}

status serve_request_read(const serve_model *m, arena *a, bool chat, const char *bytes,
                          int64_t count, serve_request *out)
{
    enum { TOKENS_DEFAULT = 16 }; // of /v1/completions, as the API has it
    json *root = NULL;
    *out = (serve_request){.chat = chat,
                           .choices = 1,
                           .drawn = 1,
                           .likely = -1,
                           .max_tokens = chat ? 0 : TOKENS_DEFAULT,
                           .sampling = {.temperature = 1.0, .top_p = 1.0},
                           .code = 500};
    status st = json_parse(bytes, count, "the request", &root);
    if (st != ST_OK) {
        out->code = st == ST_DAMAGED ? 400 : 500;
        return st;
    }
    reading v = {.m = m, .a = a, .root = root, .r = out};
    st = read_all(&v);
    if (st != ST_OK && out->member != NULL) {
        char *member = NULL; // it may be a part of the request
        const status copied = arena_strdup(a, out->member, &member);
        out->member = copied == ST_OK ? member : NULL;
    }
    json_free(root);
    return st;
}

void serve_request_deinit(serve_request *r)
{
    for (int64_t i = 0; i < r->prompt_count; i++) data_ids_deinit(&r->prompts[i]);
    r->prompt_count = 0;
}
