// Renders conversations and finds the parts that the assistant said.
#include "base/text.h"
#include "data/chat/chat_internal.h"

#include <string.h>

// Tokens that end a turn in published templates.
static const char *const usual_ends[] = {"<|im_end|>", "<|eot_id|>",    "</s>",
                                         "<|end|>",    "<end_of_turn>", "<|endoftext|>"};

static status add_span(data_chat *c, chat_text *t, int64_t begin, int64_t end)
{
    TRY(arena_grow(c->scratch, (void **)&t->spans, &t->span_capacity, t->span_count + 1,
                   sizeof(jinja_span)));
    t->spans[t->span_count++] = (jinja_span){begin, end};
    return ST_OK;
}

// The first `count` messages, with or without the header of an answer.
static status render(data_chat *c, const chat_record *r, int64_t count, bool prompt,
                     jinja_result *out)
{
    const jinja_variable variables[] = {
        {.name = "messages", .value = r->messages, .string = NULL},
        {.name = "tools", .value = r->tools, .string = NULL},
        {.name = "bos_token", .value = NULL, .string = c->bos},
        {.name = "eos_token", .value = NULL, .string = c->eos},
        {.name = "add_generation_prompt", .is_bool = true, .truth = prompt},
    };
    const jinja_context context = {.variables = variables,
                                   .variable_count = COUNT_OF(variables),
                                   .limited = "messages",
                                   .list_limit = count,
                                   .unix_s = c->spec.unix_s};
    const status st = jinja_render(c->jinja, c->scratch, &context, out);
    if (st != ST_OK)
        note("while the messages of %s:%lld were rendered", r->what, (long long)r->line);
    return st;
}

static const json *message_at(const chat_record *r, int64_t i)
{
    return json_at(r->messages, i);
}

static bool is_assistant(const chat_record *r, int64_t i)
{
    return strcmp(json_text(json_get(message_at(r, i), "role"), ""), "assistant") == 0;
}

// Whether message i, of an assistant, is trained.
static bool is_trained(const data_chat *c, const chat_record *r, int64_t i)
{
    const json *weight = json_get(message_at(r, i), "weight");
    if (i < r->first || (weight != NULL && json_real(weight, 1.0) == 0.0)) return false;
    for (int64_t k = i + 1; c->spec.trained == DATA_TRAINED_LAST && k < json_count(r->messages);
         k++) {
        if (is_assistant(r, k)) return false;
    }
    return true;
}

static bool begins_with(const text *t, const text *with)
{
    return with->length <= t->length && memcmp(t->bytes, with->bytes, (size_t)with->length) == 0;
}

static int64_t find(const text *in, const char *what, int64_t count, int64_t from)
{
    for (int64_t at = from; count > 0 && at + count <= in->length; at++) {
        if (memcmp(in->bytes + at, what, (size_t)count) == 0) return at;
    }
    return -1;
}

// The content of a message without white space at its ends; 0 bytes if it is no text.
static int64_t content_of(const chat_record *r, int64_t i, const char **out)
{
    const json *content = json_get(message_at(r, i), "content");
    int64_t count = json_text_bytes(content);
    *out = json_text(content, "");
    for (; count > 0 && text_is_blank(**out); count--) (*out)++;
    while (count > 0 && text_is_blank((*out)[count - 1])) count--;
    return count;
}

// The bytes of a token that ends a turn at `at`; 0: none.
static int64_t end_token_at(const data_chat *c, const text *t, int64_t at)
{
    const int64_t own = (int64_t)strlen(c->eos);
    if (own > 0 && find(t, c->eos, own, at) == at) return own;
    for (int64_t i = 0; i < COUNT_OF(usual_ends); i++) {
        const int64_t n = (int64_t)strlen(usual_ends[i]);
        if (at + n <= t->length && memcmp(t->bytes + at, usual_ends[i], (size_t)n) == 0) return n;
    }
    return 0;
}

// Where the template renders an earlier turn otherwise once others follow: the turn's own text.
static status span_of_content(const data_chat *c, const chat_record *r, int64_t i,
                              const chat_text *t, jinja_span *out)
{
    const char *content = NULL;
    const int64_t count = content_of(r, i, &content);
    const int64_t from = t->span_count > 0 ? t->spans[t->span_count - 1].end : 0;
    const int64_t at = find(&t->all, content, count, from);
    if (at < 0) {
        return record_fails(r,
                            "the template renders message %lld otherwise when others follow it, so "
                            "what the assistant says is not found; mark it in the template with "
                            "{%% generation %%} and {%% endgeneration %%}, or give "
                            "data.trained=last",
                            (long long)i + 1);
    }
    *out = (jinja_span){at, at + count + end_token_at(c, &t->all, at + count)};
    return ST_OK;
}

// Without white space after the end token, and without a header that the template never writes
// before an answer.
static void span_trim(const chat_record *r, int64_t i, const text *all, bool has_header,
                      jinja_span *s)
{
    const char *content = NULL;
    const int64_t count = content_of(r, i, &content);
    const int64_t at = has_header ? -1 : find(all, content, count, s->begin);
    if (at >= 0 && at + count <= s->end) s->begin = at;
    while (s->end > s->begin && text_is_blank(all->bytes[s->end - 1])) s->end--;
}

static status span_of_turn(data_chat *c, const chat_record *r, int64_t i, const chat_text *t,
                           jinja_span *out)
{
    jinja_result before, after, bare;
    TRY(render(c, r, i, true, &before));
    TRY(render(c, r, i + 1, false, &after));
    if (!begins_with(&t->all, &before.out) || !begins_with(&t->all, &after.out) ||
        after.out.length < before.out.length) {
        return span_of_content(c, r, i, t, out);
    }
    TRY(render(c, r, i, false, &bare));
    *out = (jinja_span){before.out.length, after.out.length};
    span_trim(r, i, &t->all, before.out.length > bare.out.length, out);
    return ST_OK;
}

// The template's own marks are those of the assistant's turns, in order.
static status spans_of_marks(data_chat *c, const chat_record *r, const jinja_result *all,
                             chat_text *t)
{
    int64_t turn = 0, turns = 0;
    for (int64_t i = 0; i < json_count(r->messages); i++) turns += is_assistant(r, i) ? 1 : 0;
    if (turns != all->mark_count) {
        return record_fails(r, "the template marks %lld parts of %lld turns of the assistant",
                            (long long)all->mark_count, (long long)turns);
    }
    for (int64_t i = 0; i < json_count(r->messages); i++) {
        if (!is_assistant(r, i)) continue;
        const jinja_span s = all->marks[turn++];
        if (is_trained(c, r, i)) TRY(add_span(c, t, s.begin, s.end));
    }
    return ST_OK;
}

status conversation_render(data_chat *c, const chat_record *r, chat_text *out)
{
    jinja_result all;
    const int64_t count = json_count(r->messages);
    if (c->jinja == NULL) {
        return record_fails(r, "messages need a chat template, and the tokenizer has none; give "
                               "data.template: chatml, llama3 or a file");
    }
    *out = (chat_text){.span_count = 0};
    TRY(render(c, r, count, false, &all));
    out->all = all.out;
    if (jinja_has_marks(c->jinja)) return spans_of_marks(c, r, &all, out);
    for (int64_t i = 0; i < count; i++) {
        jinja_span s = {0, 0};
        if (!is_assistant(r, i) || !is_trained(c, r, i)) continue;
        TRY(span_of_turn(c, r, i, out, &s));
        TRY(add_span(c, out, s.begin, s.end));
    }
    return ST_OK;
}

status texts_render(data_chat *c, const chat_record *r, chat_text *out)
{
    *out = (chat_text){.all = {.a = c->scratch}};
    TRY(text_add_bytes(&out->all, r->prompt, r->prompt_bytes));
    TRY(text_add_bytes(&out->all, r->answer, r->answer_bytes));
    TRY(text_add(&out->all, "%s", ""));
    return add_span(c, out, r->prompt_bytes, out->all.length);
}

// ---- asking for an answer -----------------------------------------------------------------------

static status add_message(text *t, const char *role, const char *content, int64_t bytes)
{
    TRY(text_add(t, "%s{\"role\": \"%s\", \"content\": ", t->length > 0 ? ", " : "[", role));
    if ((int64_t)strlen(content) != bytes) {
        return fail(ST_DATA, "a NUL character in a message of the %s", role);
    }
    TRY(text_add_json(t, content));
    return text_add(t, "}");
}

status data_chat_ask(data_chat *c, arena *a, const json *messages, text *out)
{
    const chat_record r = {
        .what = "the messages", .line = 1, .messages = (json *)(uintptr_t)messages};
    jinja_result all;
    if (c->jinja == NULL) {
        return fail(ST_DATA,
                    "the tokenizer has no chat template; give --template chatml, llama3 or a "
                    "file");
    }
    arena_reset(c->scratch);
    TRY(render(c, &r, json_count(messages), true, &all));
    *out = (text){.a = a};
    return text_add_bytes(out, all.out.bytes, all.out.length);
}

status data_chat_prompt(data_chat *c, arena *a, const char *system, const char *user,
                        int64_t user_bytes, text *out)
{
    char *copy = NULL;
    json *messages = NULL;
    arena_reset(c->scratch);
    text t = {.a = c->scratch};
    TRY(arena_new(c->scratch, user_bytes + 1, &copy));
    memcpy(copy, user, (size_t)user_bytes);
    if (!text_is_utf8(copy, user_bytes)) return fail(ST_DATA, "the prompt is not UTF-8");
    if (system != NULL) TRY(add_message(&t, "system", system, (int64_t)strlen(system)));
    TRY(add_message(&t, "user", copy, user_bytes));
    TRY(text_add(&t, "]"));
    TRY(json_parse(t.bytes, t.length, "the prompt", &messages));
    const status st = data_chat_ask(c, a, messages, out);
    json_free(messages);
    return st;
}

int64_t data_chat_ends(const data_chat *c, int32_t ends[DATA_CHAT_ENDS_MAX])
{
    int64_t count = 0;
    for (int64_t i = -1; i < COUNT_OF(usual_ends) && count < DATA_CHAT_ENDS_MAX; i++) {
        const char *word = i < 0 ? c->eos : usual_ends[i];
        const int32_t id = word[0] != 0 ? data_tokenizer_find(c->spec.tokenizer, word) : -1;
        if (id >= 0) ends[count++] = id;
    }
    return count;
}
