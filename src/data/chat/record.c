// The lines of the formats: each becomes messages, or a prompt and an answer as texts.
#include "data/chat/chat_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

status record_fails(const chat_record *r, const char *format, ...)
{
    char message[400];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    return fail(ST_DATA, "%s:%lld: %s", r->what, (long long)r->line, message);
}

static void free_owned(chat_record *r)
{
    for (int64_t i = 0; i < r->owned_count; i++) json_free(r->owned[i]);
    r->owned_count = 0;
}

void record_free(chat_record *r)
{
    free_owned(r);
    json_free(r->messages);
    json_free(r->tools);
    r->messages = r->tools = NULL;
}

typedef struct chat_line {
    const char *bytes;
    int64_t count;
} chat_line;

// Parses the members with these keys; they belong to the record, except for those that are taken
// out of `values`.
static status members(chat_record *r, chat_line line, const char *const *keys, int64_t count,
                      json **values)
{
    free_owned(r);
    TRY(json_parse_members(line.bytes, line.count, r->what, r->line, keys, count, values));
    for (int64_t i = 0; i < count; i++) r->owned[i] = values[i];
    r->owned_count = count;
    return ST_OK;
}

status record_members(chat_record *r, const char *bytes, int64_t count, const char *const *keys,
                      int64_t key_count, json **values)
{
    return members(r, (chat_line){bytes, count}, keys, key_count, values);
}

static void take(chat_record *r, int64_t i, json **out)
{
    json_free(*out);
    *out = r->owned[i];
    r->owned[i] = NULL;
}

static bool is_text(const json *v)
{
    return json_kind_of(v) == JSON_TEXT;
}

static bool is_given(const json *v)
{
    return v != NULL && json_kind_of(v) != JSON_NULL_VALUE;
}

// ---- messages that are made ---------------------------------------------------------------------

static status add_message(text *t, const char *role, const char *content)
{
    TRY(text_add(t, "%s{\"role\": ", t->length > 0 ? ", " : "["));
    TRY(text_add_json(t, role));
    TRY(text_add(t, ", \"content\": "));
    TRY(text_add_json(t, content));
    return text_add(t, "}");
}

static status messages_end(chat_record *r, text *t)
{
    TRY(text_add(t, "]"));
    json_free(r->messages);
    r->messages = NULL;
    return json_parse(t->bytes, t->length, r->what, &r->messages);
}

// A text without NUL, which the functions on messages need.
static status plain(const chat_record *r, const char *key, const json *v, const char **out)
{
    *out = json_text(v, NULL);
    if (*out == NULL) return record_fails(r, "\"%s\" is missing or no text", key);
    if ((int64_t)strlen(*out) == json_text_bytes(v)) return ST_OK;
    return record_fails(r, "\"%s\" holds a NUL character", key);
}

// ---- the formats --------------------------------------------------------------------------------

static status read_text(chat_record *r, chat_line line)
{
    static const char *const keys[] = {"text"};
    json *values[1] = {NULL};
    TRY(members(r, line, keys, 1, values));
    if (!is_text(values[0])) return record_fails(r, "no \"text\" that is a text");
    r->prompt = "";
    r->answer = json_text(values[0], "");
    r->answer_bytes = json_text_bytes(values[0]);
    return ST_OK;
}

static status check_messages(const chat_record *r, const json *messages)
{
    if (json_kind_of(messages) != JSON_LIST || json_count(messages) == 0) {
        return record_fails(r, "no list of messages with at least one");
    }
    for (int64_t i = 0; i < json_count(messages); i++) {
        if (is_text(json_get(json_at(messages, i), "role"))) continue;
        return record_fails(r, "message %lld has no \"role\" that is a text", (long long)i + 1);
    }
    return ST_OK;
}

static status read_messages(chat_record *r, chat_line line)
{
    static const char *const keys[] = {"messages", "tools"};
    json *values[2] = {NULL, NULL};
    TRY(members(r, line, keys, 2, values));
    TRY(check_messages(r, values[0]));
    take(r, 0, &r->messages);
    if (is_given(values[1])) take(r, 1, &r->tools);
    return ST_OK;
}

// Both lists as one; their texts are cut out of the line.
static status join_lists(data_chat *c, chat_record *r, const json *prompt, const json *completion,
                         int64_t skip)
{
    text t = {.a = c->scratch};
    if (prompt != NULL) TRY(check_messages(r, prompt));
    TRY(check_messages(r, completion));
    const json *const lists[] = {prompt, completion};
    for (int64_t k = prompt == NULL; k < 2; k++) {
        for (int64_t i = 0; i < json_count(lists[k]); i++) {
            const char *role = NULL, *content = NULL;
            TRY(plain(r, "role", json_get(json_at(lists[k], i), "role"), &role));
            TRY(plain(r, "content", json_get(json_at(lists[k], i), "content"), &content));
            TRY(add_message(&t, role, content));
        }
    }
    r->first = prompt != NULL ? json_count(prompt) : skip;
    return messages_end(r, &t);
}

status record_answer(data_chat *c, chat_record *r, const json *prompt, const json *answer,
                     int64_t skip)
{
    text t = {.a = c->scratch};
    if (json_kind_of(answer) == JSON_LIST) return join_lists(c, r, prompt, answer, skip);
    if (c->jinja == NULL || !c->is_given) {
        r->prompt = json_text(prompt, "");
        r->prompt_bytes = json_text_bytes(prompt);
        r->answer = json_text(answer, "");
        r->answer_bytes = json_text_bytes(answer);
        return ST_OK;
    }
    const char *asked = NULL, *said = NULL;
    TRY(plain(r, "prompt", prompt, &asked));
    TRY(plain(r, "completion", answer, &said));
    TRY(add_message(&t, "user", asked));
    TRY(add_message(&t, "assistant", said));
    return messages_end(r, &t);
}

static status read_prompt(data_chat *c, chat_record *r, chat_line line)
{
    static const char *const keys[] = {"prompt", "completion", "tools"};
    json *values[3] = {NULL, NULL, NULL};
    TRY(members(r, line, keys, 3, values));
    if (is_given(values[2])) take(r, 2, &r->tools);
    const bool lists = json_kind_of(values[0]) == JSON_LIST;
    if (!lists && (!is_text(values[0]) || !is_text(values[1]))) {
        return record_fails(r, "\"prompt\" and \"completion\" are not two texts or two lists");
    }
    if (lists) return join_lists(c, r, values[0], values[1], 0);
    return record_answer(c, r, values[0], values[1], 0);
}

// Without a chat template: the prompt of the project that the format is named after.
static status alpaca_texts(data_chat *c, chat_record *r, const char *instruction, const char *input,
                           const json *output)
{
    text t = {.a = c->scratch};
    TRY(text_add(&t,
                 "Below is an instruction that describes a task%s. Write a response that "
                 "appropriately completes the request.\n\n### Instruction:\n%s\n\n",
                 *input != 0 ? ", paired with an input that provides further context" : "",
                 instruction));
    if (*input != 0) TRY(text_add(&t, "### Input:\n%s\n\n", input));
    TRY(text_add(&t, "### Response:\n"));
    r->prompt = t.bytes;
    r->prompt_bytes = t.length;
    r->answer = json_text(output, "");
    r->answer_bytes = json_text_bytes(output);
    return ST_OK;
}

static status read_alpaca(data_chat *c, chat_record *r, chat_line line)
{
    static const char *const keys[] = {"instruction", "input", "output", "system"};
    json *values[4] = {NULL, NULL, NULL, NULL};
    const char *texts[4] = {"", "", "", ""};
    text t = {.a = c->scratch}, user = {.a = c->scratch};
    TRY(members(r, line, keys, 4, values));
    for (int i = 0; i < 4; i++) {
        if ((i == 1 || i == 3) && !is_given(values[i])) continue;
        TRY(plain(r, keys[i], values[i], &texts[i]));
    }
    if (c->jinja == NULL) {
        if (*texts[3] != 0) return record_fails(r, "\"system\" needs a chat template");
        return alpaca_texts(c, r, texts[0], texts[1], values[2]);
    }
    TRY(text_add(&user, "%s%s%s", texts[0], *texts[1] != 0 ? "\n" : "", texts[1]));
    if (*texts[3] != 0) TRY(add_message(&t, "system", texts[3]));
    TRY(add_message(&t, "user", user.bytes));
    TRY(add_message(&t, "assistant", texts[2]));
    return messages_end(r, &t);
}

static const char *role_of(const char *from)
{
    static const char *const names[][2] = {
        {"human", "user"},    {"user", "user"},           {"gpt", "assistant"},
        {"bot", "assistant"}, {"assistant", "assistant"}, {"system", "system"},
        {"tool", "tool"},     {"observation", "tool"},
    };
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(from, names[i][0]) == 0) return names[i][1];
    }
    return NULL;
}

static status read_sharegpt(data_chat *c, chat_record *r, chat_line line)
{
    static const char *const keys[] = {"conversations", "system", "tools"};
    json *values[3] = {NULL, NULL, NULL};
    const char *from = NULL, *said = NULL;
    text t = {.a = c->scratch};
    TRY(members(r, line, keys, 3, values));
    if (json_kind_of(values[0]) != JSON_LIST || json_count(values[0]) == 0) {
        return record_fails(r, "no list of \"conversations\" with at least one");
    }
    if (is_given(values[1])) {
        TRY(plain(r, keys[1], values[1], &said));
        TRY(add_message(&t, "system", said));
    }
    for (int64_t i = 0; i < json_count(values[0]); i++) {
        const json *turn = json_at(values[0], i);
        TRY(plain(r, "from", json_get(turn, "from"), &from));
        TRY(plain(r, "value", json_get(turn, "value"), &said));
        const char *role = role_of(from);
        if (role == NULL) {
            return record_fails(r,
                                "turn %lld is from \"%.60s\", which is no known role: human, "
                                "gpt, system or tool expected",
                                (long long)i + 1, from);
        }
        TRY(add_message(&t, role, said));
    }
    if (is_given(values[2])) {
        if (json_kind_of(values[2]) != JSON_LIST) {
            return record_fails(r, "\"tools\" is no list");
        }
        take(r, 2, &r->tools);
    }
    return messages_end(r, &t);
}

// ---- the format of the first line ---------------------------------------------------------------

static status detect(data_chat *c, chat_record *r, chat_line line)
{
    static const char *const keys[] = {"messages", "conversations", "instruction", "prompt",
                                       "text"};
    static const data_format formats[] = {DATA_FORMAT_MESSAGES, DATA_FORMAT_SHAREGPT,
                                          DATA_FORMAT_ALPACA, DATA_FORMAT_PROMPT, DATA_FORMAT_TEXT};
    json *values[COUNT_OF(keys)] = {NULL};
    TRY(members(r, line, keys, COUNT_OF(keys), values));
    for (int64_t i = 0; i < COUNT_OF(keys) && c->found == DATA_FORMAT_AUTO; i++) {
        if (is_given(values[i])) c->found = formats[i];
    }
    if (c->found != DATA_FORMAT_AUTO) return ST_OK;
    return record_fails(r, "an object with messages, conversations, instruction, prompt or text "
                           "expected; data.format says what a line holds");
}

status record_read(data_chat *c, const char *bytes, int64_t count, chat_record *out)
{
    const chat_line line = {bytes, count};
    if (c->found == DATA_FORMAT_AUTO) TRY(detect(c, out, line));
    switch (c->found) {
    case DATA_FORMAT_TEXT:
        return read_text(out, line);
    case DATA_FORMAT_PROMPT:
        return read_prompt(c, out, line);
    case DATA_FORMAT_ALPACA:
        return read_alpaca(c, out, line);
    case DATA_FORMAT_SHAREGPT:
        return read_sharegpt(c, out, line);
    case DATA_FORMAT_PAIRS: // pair_encode() reads them
    case DATA_FORMAT_LABELLED:
    case DATA_FORMAT_ROLLOUTS:
    case DATA_FORMAT_MESSAGES:
    case DATA_FORMAT_AUTO:
        break;
    }
    return read_messages(out, line);
}
