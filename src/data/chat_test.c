// Samples of conversations: the text and the mask of every format, refusals with their place, rows
// that hold each sample once and leak nothing, and the ids and masks of the references.
#include "base/format/json.h"
#include "base/text.h"
#include "data/chat.h"
#include "data/dataset.h"
#include "data/prompts.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static arena *memory;
static data_tokenizer *bytes_tokenizer;

static const char *write_file(const char *name, const char *content)
{
    char *path = NULL;
    assert_int_equal(path_join(memory, folder, name, &path), ST_OK);
    assert_int_equal(host_write_all(host_real(), path, content, (int64_t)strlen(content)), ST_OK);
    return path;
}

static data_chat *open_chat(const data_chat_spec *spec)
{
    data_chat *c = NULL;
    const status st = data_chat_open(host_real(), memory, spec, &c);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    return c;
}

// The sample's text with [ and ] around what is trained; each byte is a token.
static void show(const data_sample *s, char *out)
{
    for (int64_t i = 0; i < s->ids.count; i++) {
        const bool was = i > 0 && s->trained.items[i - 1] != 0, is = s->trained.items[i] != 0;
        if (was != is) *out++ = is ? '[' : ']';
        if (s->ids.items[i] < 256) *out++ = (char)s->ids.items[i];
        if (is && i + 1 == s->ids.count) *out++ = ']';
    }
    *out = 0;
}

typedef struct one_case {
    data_format format;
    const char *source, *line;
    const char *expected; // or, after '!', a part of the error
    data_trained trained;
} one_case;

#define ALL  DATA_TRAINED_ALL
#define LAST DATA_TRAINED_LAST
static const one_case cases[] = {
    {DATA_FORMAT_AUTO, "none", "{\"text\": \"abc\"}", "[abc]", ALL},
    {DATA_FORMAT_AUTO, "auto", "{\"prompt\": \"ab\", \"completion\": \"cd\"}", "ab[cd]", ALL},
    {DATA_FORMAT_AUTO, "chatml", "{\"prompt\": \"ab\", \"completion\": \"cd\"}",
     "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n[cd<|im_end|>]\n", ALL},
    {DATA_FORMAT_AUTO, "chatml",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
     "{\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, "
     "{\"role\": \"assistant\", \"content\": \"\"}]}",
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n<|im_start|>user\n"
     "c<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n",
     ALL},
    {DATA_FORMAT_AUTO, "chatml",
     "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 1}, "
     "{\"role\": \"assistant\", \"content\": \"d\"}]}",
     "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>]\n", LAST},
    {DATA_FORMAT_MESSAGES, "chatml",
     "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}, "
     "{\"role\": \"assistant\", \"content\": \"d\"}]}",
     "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>]\n", ALL},
    {DATA_FORMAT_AUTO, "llama3",
     "{\"messages\": [{\"role\": \"user\", \"content\": \" a \"}, "
     "{\"role\": \"assistant\", \"content\": \" b \"}]}",
     "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\n[b<|eot_id|>]",
     ALL},
    {DATA_FORMAT_AUTO, "chatml",
     "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"completion\": "
     "[{\"role\": \"assistant\", \"content\": \"y\"}]}",
     "<|im_start|>assistant\nx<|im_end|>\n<|im_start|>assistant\n[y<|im_end|>]\n", ALL},
    {DATA_FORMAT_AUTO, "chatml",
     "{\"instruction\": \"do\", \"input\": \"it\", \"output\": \"done\", \"other\": NaN}",
     "<|im_start|>user\ndo\nit<|im_end|>\n<|im_start|>assistant\n[done<|im_end|>]\n", ALL},
    {DATA_FORMAT_AUTO, "none", "{\"instruction\": \"do\", \"input\": \"\", \"output\": \"done\"}",
     "Below is an instruction that describes a task. Write a response that appropriately completes "
     "the request.\n\n### Instruction:\ndo\n\n### Response:\n[done]",
     ALL},
    {DATA_FORMAT_AUTO, "chatml",
     "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, "
     "{\"from\": \"gpt\", \"value\": \"b\"}], \"system\": \"s\"}",
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
     "[b<|im_end|>]\n",
     ALL},
    {DATA_FORMAT_AUTO, "none", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
     "!f:3: messages need a chat template", ALL},
    {DATA_FORMAT_AUTO, "chatml", "{\"messages\": []}", "!no list of messages", ALL},
    {DATA_FORMAT_AUTO, "chatml", "{\"messages\": [{\"content\": \"a\"}]}", "!message 1 has no",
     ALL},
    {DATA_FORMAT_AUTO, "chatml", "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}",
     "!chatml:1:", ALL},
    {DATA_FORMAT_AUTO, "none", "{\"other\": 1}", "!data.format says", ALL},
    {DATA_FORMAT_AUTO, "none", "[1]", "!data.format says", ALL},
    {DATA_FORMAT_PROMPT, "none", "{\"prompt\": \"a\"}", "!\"prompt\" and \"completion\"", ALL},
    {DATA_FORMAT_SHAREGPT, "chatml", "{\"conversations\": [{\"from\": \"who\", \"value\": \"a\"}]}",
     "!no known role", ALL},
    {DATA_FORMAT_ALPACA, "chatml", "{\"instruction\": \"a\\u0000b\", \"output\": \"x\"}",
     "!NUL character", ALL},
};

static void test_formats(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const one_case *k = &cases[i];
        char shown[1024];
        data_sample s = {.turns = 0};
        const data_chat_spec spec = {.source = k->source,
                                     .tokenizer = bytes_tokenizer,
                                     .format = k->format,
                                     .trained = k->trained};
        data_chat *c = open_chat(&spec);
        const status st = data_chat_encode(c, k->line, (int64_t)strlen(k->line), "f", 3, &s);
        if (k->expected[0] == '!') {
            assert_int_equal(st, ST_DATA);
            assert_non_null(strstr(error_last()->text, k->expected + 1));
        } else {
            if (st != ST_OK) fail_msg("%s: %s", k->line, error_last()->text);
            show(&s, shown);
            assert_string_equal(shown, k->expected);
        }
        data_sample_deinit(&s);
        data_chat_close(c);
    }
}

// A template that writes an earlier answer in another way than the last one.
static void test_a_turn_that_changes(void **state)
{
    (void)state;
    static const char line[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"one\"}, "
                               "{\"role\": \"assistant\", \"content\": \"two\"}]}";
    const data_chat_spec spec = {
        .source = write_file("t.jinja", "{% for m in messages %}{{ '=' if loop.last else '-' }}"
                                        "{{ m.content }}</s>{% endfor %}"),
        .tokenizer = bytes_tokenizer};
    char shown[64];
    data_sample s = {.turns = 0};
    data_chat *c = open_chat(&spec);
    assert_int_equal(data_chat_encode(c, line, sizeof(line) - 1, "f", 1, &s), ST_OK);
    show(&s, shown);
    assert_string_equal(shown, "-[one</s>]=[two</s>]");
    assert_int_equal(s.turns, 2);
    data_sample_deinit(&s);
    data_chat_close(c);
}

// ---- rows ---------------------------------------------------------------------------------------

enum { SEQ = 16, SAMPLES = 40 }; // '0' to 'W'

static data_dataset *open_rows(const data_chat_spec *chat, const char *path, const char *valid)
{
    data_dataset *d = NULL;
    const char *train[] = {path};
    const data_dataset_spec spec = {.train = train,
                                    .train_count = 1,
                                    .valid = valid,
                                    .seq = SEQ,
                                    .packing = DATA_PACKING_MASKED,
                                    .seed = 5,
                                    .tokenizer = bytes_tokenizer,
                                    .chat = chat};
    const status st = data_dataset_open(host_real(), memory, &spec, &d);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    return d;
}

// Sample i: a prompt of one letter, then i % 7 + 1 times the letter of the sample.
static const char *write_samples(void)
{
    text t = {.a = memory};
    for (int i = 0; i < SAMPLES; i++) {
        char letters[8] = {0};
        memset(letters, '0' + i, (size_t)(i % 7 + 1));
        const status st = text_add(&t, "{\"prompt\": \"!\", \"completion\": \"%s\"}\n", letters);
        assert_int_equal(st, ST_OK);
    }
    return write_file("samples.jsonl", t.bytes);
}

static void check_row(const data_rows *row, int *seen)
{
    for (int t = 0; t < SEQ; t++) {
        const bool begins = t == 0 || row->documents[t] != row->documents[t - 1];
        assert_int_equal(row->positions[t], begins ? 0 : row->positions[t - 1] + 1);
        if (begins && row->ids[t] == '!') seen[row->ids[t + 1] - '0']++;
        if (row->labels[t] == DATA_LABEL_IGNORED) continue;
        assert_true(t + 1 < SEQ); // a label is the next token of the same sample
        assert_int_equal(row->labels[t], row->ids[t + 1]);
        assert_int_equal(row->documents[t], row->documents[t + 1]);
    }
}

static void test_rows(void **state)
{
    (void)state;
    int32_t cells[4][SEQ];
    const data_rows row = {cells[0], cells[1], cells[2], cells[3]};
    const data_chat_spec chat = {.source = "none", .tokenizer = bytes_tokenizer};
    data_dataset *d = open_rows(&chat, write_samples(), "0.2");
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[SAMPLES] = {0}, all = 0;
        const int64_t rows = data_dataset_sequences(d, DATA_TRAIN);
        for (int64_t n = 0; n < rows; n++) {
            assert_int_equal(data_batch_fill(d, DATA_TRAIN, epoch * rows + n, 1, &row), ST_OK);
            check_row(&row, seen);
        }
        for (int64_t n = 0; n < data_dataset_sequences(d, DATA_VALID); n++) {
            assert_int_equal(data_batch_fill(d, DATA_VALID, n, 1, &row), ST_OK);
            check_row(&row, seen);
        }
        for (int i = 0; i < SAMPLES; i++) all += seen[i] == 1 ? 1 : 0;
        assert_int_equal(all, SAMPLES);
    }
    assert_int_equal(data_dataset_samples(d, DATA_VALID)->samples, 8);
    assert_int_equal(data_dataset_samples(d, DATA_TRAIN)->cut, 0);
    data_dataset_close(d);
}

// Samples of one letter, each a row of its own: which file a row is from shows at once.
static const char *write_letters(const char *name, char letter, int count)
{
    text t = {.a = memory};
    for (int i = 0; i < count; i++) {
        assert_int_equal(text_add(&t,
                                  "{\"prompt\": \"!\", \"completion\": \"%c%c%c%c%c%c%c%c%c\", "
                                  "\"id\": \"%c%d\"}\n",
                                  letter, letter, letter, letter, letter, letter, letter, letter,
                                  (char)('0' + i), letter, i),
                         ST_OK);
    }
    return write_file(name, t.bytes);
}

static data_dataset *open_mix(const char *const *train, const data_phase *phases, int64_t count)
{
    static const data_chat_spec chat = {.source = "none"};
    data_chat_spec own = chat;
    own.tokenizer = bytes_tokenizer;
    data_dataset *d = NULL;
    const data_dataset_spec spec = {.train = train,
                                    .train_count = 2,
                                    .seq = SEQ,
                                    .packing = DATA_PACKING_MASKED,
                                    .seed = 5,
                                    .phases = phases,
                                    .phase_count = count,
                                    .tokenizer = bytes_tokenizer,
                                    .chat = &own};
    if (data_dataset_open(host_real(), memory, &spec, &d) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    return d;
}

// The weights hold to one row at any moment, each epoch of a file has each of its samples once, a
// phase of the curriculum changes the weights, and what a list names is padding.
static void test_mixtures(void **state)
{
    (void)state;
    int32_t cells[4][SEQ];
    const data_rows row = {cells[0], cells[1], cells[2], cells[3]};
    const char *a = write_letters("a.jsonl", 'a', 3), *b = write_letters("b.jsonl", 'b', 9);
    char *train[2] = {NULL, NULL}, *place = NULL;
    assert_int_equal(arena_format(memory, &train[0], "%s=3", a), ST_OK);
    assert_int_equal(arena_format(memory, &train[1], "%s=1", b), ST_OK);
    assert_int_equal(arena_format(memory, &place, "%s:3", a), ST_OK);
    const double halves[] = {1.0, 1.0};
    const data_phase phase = {.first = 40, .weights = halves, .weight_count = 2};
    data_dataset *plain = open_mix((const char *const *)train, NULL, 0);
    data_dataset *d = open_mix((const char *const *)train, &phase, 1);
    assert_int_not_equal(data_dataset_id(d).low, data_dataset_id(plain).low);
    int seen[2][9] = {{0}};
    for (int64_t n = 0; n < 80; n++) {
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, n, 1, &row), ST_OK);
        const int from = row.ids[1] == 'a' ? 0 : 1, which = row.ids[9] - '0';
        const int64_t given = seen[0][0] + seen[0][1] + seen[0][2] + (from == 0 ? 1 : 0);
        const double wanted = n < 40 ? 0.75 * (double)(n + 1) : 30.0 + 0.5 * (double)(n - 39);
        assert_true(row.ids[0] == '!' && which >= 0 && which < (from == 0 ? 3 : 9));
        seen[from][which]++;
        assert_true((double)given > wanted - 1.0 && (double)given < wanted + 1.0);
    }
    for (int i = 0; i < 3; i++) assert_true(seen[0][i] >= 16 && seen[0][i] <= 17); // of 50
    for (int i = 0; i < 9; i++) assert_true(seen[1][i] >= 3 && seen[1][i] <= 4);   // of 30
    const char *const entries[] = {place, "b4", "nothing"};
    int64_t found = 0;
    assert_int_equal(data_dataset_exclude(d, entries, 3, &found), ST_OK);
    assert_int_equal(found, 2);
    int32_t before[4][SEQ];
    const data_rows was = {before[0], before[1], before[2], before[3]};
    for (int64_t n = 0; n < 40; n++) {
        assert_int_equal(data_batch_fill(plain, DATA_TRAIN, n, 1, &was), ST_OK);
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, n, 1, &row), ST_OK);
        const bool hides =
            (was.ids[1] == 'a' && was.ids[9] == '2') || (was.ids[1] == 'b' && was.ids[9] == '4');
        if (!hides) assert_memory_equal(cells, before, sizeof(cells));
        for (int t = 0; t < SEQ && hides; t++) {
            assert_int_equal(row.labels[t], DATA_LABEL_IGNORED);
            assert_true(row.ids[t] == row.ids[0] && row.ids[t] != '!');
        }
    }
    assert_int_equal(data_dataset_exclude(d, entries + 2, 1, &found), ST_NOT_FOUND);
    assert_int_equal(data_dataset_exclude(d, NULL, 0, &found), ST_OK);
    data_dataset_close(plain);
    data_dataset_close(d);
}

// Without a number of epochs an entry has one where another has such a number, as with texts.
static void test_epochs(void **state)
{
    (void)state;
    int32_t cells[4][SEQ];
    const data_rows row = {cells[0], cells[1], cells[2], cells[3]};
    char *twice = NULL;
    int seen[2] = {0, 0};
    const char *a = write_letters("a.jsonl", 'a', 8), *b = write_letters("b.jsonl", 'b', 4);
    assert_int_equal(arena_format(memory, &twice, "%s=2x", b), ST_OK);
    const char *const train[] = {a, twice};
    data_dataset *d = open_mix(train, NULL, 0);
    for (int64_t n = 0; n < 16; n++) {
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, n, 1, &row), ST_OK);
        seen[row.ids[1] == 'a' ? 0 : 1]++;
    }
    assert_int_equal(seen[0], 8);
    assert_int_equal(seen[1], 8);
    data_dataset_close(d);
}

// Counts of the samples of all rows that a visit meets.
typedef struct origins_seen {
    const data_dataset *d;
    int shown, hidden, lent; // lent: samples whose second document has another line's answer
} origins_seen;

static status see_origin(void *context, const data_conversation *c)
{
    origins_seen *s = context;
    data_conversation lender;
    assert_string_equal(path_base_name(c->path), "marked.jsonl");
    assert_true(c->line >= 1 && c->line <= 4 && c->completion == 0 && c->tokens > 0);
    if (c->line == 2) {
        assert_true(c->id_bytes == 2 && memcmp(c->id, "17", 2) == 0);
    } else {
        assert_null(c->id);
    }
    *(c->is_hidden ? &s->hidden : &s->shown) += 1;
    if (c->lender < 0) return ST_OK;
    data_dataset_conversation(s->d, c->lender, &lender);
    assert_int_equal(lender.line, c->line - 1);
    s->lent++;
    return ST_OK;
}

// A line of two documents that a list names is in no row, nor is the answer that it lends to the
// next line. The letters of the lines' answers are a, b, c, d.
static void check_pairs(const data_dataset *d, const char *shown, int lent)
{
    int32_t cells[4][SEQ];
    const data_rows row = {cells[0], cells[1], cells[2], cells[3]};
    origins_seen seen = {.d = d};
    bool has[128] = {false}, labels[128] = {false};
    for (int64_t n = 0; n < data_dataset_sequences(d, DATA_TRAIN); n++) {
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, n, 1, &row), ST_OK);
        for (int t = 0; t < SEQ; t++) {
            if (row.ids[t] >= 0 && row.ids[t] < 128) has[row.ids[t]] = true;
            if (row.labels[t] >= 0 && row.labels[t] < 128) labels[row.labels[t]] = true;
        }
        assert_int_equal(data_dataset_conversations(d, n, see_origin, &seen), ST_OK);
    }
    assert_int_equal(seen.shown, strlen(shown));
    assert_int_equal(seen.hidden, 4 - (int)strlen(shown));
    assert_int_equal(seen.lent, lent);
    for (char c = 'a'; c <= 'd'; c++) {
        assert_int_equal(has[(int)c], strchr(shown, c) != NULL);
        assert_int_equal(labels[(int)c], strchr(shown, c) != NULL);
    }
}

static void test_exclusion_of_pairs(void **state)
{
    (void)state;
    static const struct {
        data_format format;
        const char *line; // @: the letter of the answer
        int lent;
    } forms[] = {
        {DATA_FORMAT_PAIRS, "{\"prompt\": \"!\", \"chosen\": \"@@\", \"rejected\": \"@\"", 0},
        {DATA_FORMAT_LABELLED, "{\"prompt\": \"!\", \"completion\": \"@@@\", \"label\": true", 3},
        {DATA_FORMAT_ROLLOUTS,
         "{\"prompt\": \"!\", \"completions\": [\"@@@\"], \"rewards\": [1], "
         "\"old\": [[-1, -1, -1, -1]]",
         0},
    };
    for (int i = 0; i < COUNT_OF(forms); i++) {
        text t = {.a = memory};
        for (char c = 'a'; c <= 'd'; c++) {
            for (const char *at = forms[i].line; *at != 0; at++) {
                assert_int_equal(text_add(&t, "%c", *at == '@' ? c : *at), ST_OK);
            }
            assert_int_equal(text_add(&t, "%s}\n", c == 'b' ? ", \"id\": 17" : ""), ST_OK);
        }
        const char *train[] = {write_file("marked.jsonl", t.bytes)};
        const data_chat_spec chat = {
            .source = "none", .tokenizer = bytes_tokenizer, .format = forms[i].format};
        const data_dataset_spec spec = {.train = train,
                                        .train_count = 1,
                                        .seq = SEQ,
                                        .tokenizer = bytes_tokenizer,
                                        .chat = &chat};
        const char *const entries[] = {"17", "marked.jsonl:4", "marked.jsonl:40"};
        char flags[4];
        data_dataset *d = NULL;
        int64_t found = 0;
        if (data_dataset_open(host_real(), memory, &spec, &d) != ST_OK) {
            fail_msg("%s", error_last()->text);
        }
        check_pairs(d, "abcd", forms[i].lent);
        assert_int_equal(data_dataset_exclude(d, entries, 3, &found), ST_OK);
        assert_int_equal(found, 2);
        check_pairs(d, "ac", forms[i].lent);
        assert_int_equal(data_dataset_conversations_named(d, "17", flags, &found), ST_OK);
        assert_true(found == 1 && flags[1] == 1 && flags[0] + flags[2] + flags[3] == 0);
        assert_int_equal(data_dataset_exclude(d, entries + 2, 1, &found), ST_NOT_FOUND);
        assert_int_equal(data_dataset_exclude(d, NULL, 0, &found), ST_OK);
        check_pairs(d, "abcd", forms[i].lent);
        data_dataset_close(d);
    }
}

// Prompts: a place whose prompt is left out goes to the next one; every other place keeps its own.
static void test_exclusion_of_prompts(void **state)
{
    (void)state;
    const data_chat_spec chat = {.source = "none", .tokenizer = bytes_tokenizer};
    const char *path = write_file("prompts.jsonl", "{\"prompt\": \"a\"}\n\n"
                                                   "{\"prompt\": \"b\", \"id\": \"two\"}\n"
                                                   "{\"prompt\": \"c\", \"id\": 3}\n");
    const char *const entries[] = {"two", "prompts.jsonl:4"};
    data_prompts p;
    int64_t found = 0;
    assert_int_equal(data_prompts_read(host_real(), memory, &chat, path, 9, &p), ST_OK);
    char flags[3];
    assert_int_equal(data_prompts_named(&p, "prompts.jsonl:3", flags, &found), ST_OK);
    assert_true(found == 1 && flags[1] == 1);
    assert_int_equal(data_prompts_named(&p, "3", flags, &found), ST_OK);
    assert_true(found == 1 && flags[2] == 1);
    assert_int_equal(data_prompts_named(&p, "prompts.jsonl:2", flags, &found), ST_OK);
    assert_true(found == 0 && flags[1] == 0);
    assert_int_equal(data_prompts_named(&p, "prompts.jsonl:3e0", flags, &found), ST_OK);
    assert_int_equal(found, 0);
    int64_t was[12];
    for (int at = 0; at < 12; at++) was[at] = data_prompts_at(&p, 7, at);
    for (int k = 1; k <= 2; k++) {
        assert_int_equal(data_prompts_exclude(&p, entries, k, &found), ST_OK);
        assert_int_equal(found, k);
        for (int at = 0; at < 12; at++) {
            const int64_t want = was[at] == 0 || k == 2 ? 0 : 2;
            assert_int_equal(data_prompts_at(&p, 7, at), want);
        }
    }
    char *first = NULL;
    assert_int_equal(arena_format(memory, &first, "%s:1", path), ST_OK);
    const char *const every[] = {"two", "3", first}, *const none[] = {"prompts.jsonl:2"};
    assert_int_equal(data_prompts_exclude(&p, every, 3, &found), ST_DATA);
    assert_int_equal(data_prompts_exclude(&p, none, 1, &found), ST_NOT_FOUND);
    assert_int_equal(data_prompts_exclude(&p, NULL, 0, &found), ST_OK);
    for (int at = 0; at < 12; at++) assert_int_equal(data_prompts_at(&p, 7, at), was[at]);
}

static void test_refusals(void **state)
{
    (void)state;
    const data_chat_spec chat = {.source = "chatml", .tokenizer = bytes_tokenizer};
    data_dataset *d = NULL;
    const char *train[] = {
        write_file("user.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n")};
    data_dataset_spec spec = {
        .train = train, .train_count = 1, .seq = SEQ, .tokenizer = bytes_tokenizer, .chat = &chat};
    assert_int_equal(data_dataset_open(host_real(), memory, &spec, &d), ST_DATA);
    assert_non_null(strstr(error_last()->text, "tokens of data.train is trained"));
    train[0] = write_file("plain.txt", "a text\n");
    assert_int_equal(data_dataset_open(host_real(), memory, &spec, &d), ST_DATA);
    assert_non_null(strstr(error_last()->text, "no JSON lines"));
    train[0] = write_file("bad.jsonl", "\n{\"messages\": 1}\n");
    assert_int_equal(data_dataset_open(host_real(), memory, &spec, &d), ST_DATA);
    assert_non_null(strstr(error_last()->text, "bad.jsonl:2: no list of messages"));
}

// ---- references ---------------------------------------------------------------------------------

static void check_conversation(data_chat *c, const json *want)
{
    text line = {.a = memory};
    data_sample s = {.turns = 0};
    assert_int_equal(text_add(&line, "{\"messages\": ["), ST_OK);
    const json *messages = json_get(want, "messages");
    for (int64_t i = 0; i < json_count(messages); i++) {
        const json *m = json_at(messages, i);
        assert_int_equal(text_add(&line, "%s{\"role\": ", i > 0 ? ", " : ""), ST_OK);
        assert_int_equal(text_add_json(&line, json_text(json_get(m, "role"), "")), ST_OK);
        assert_int_equal(text_add(&line, ", \"content\": "), ST_OK);
        assert_int_equal(text_add_json(&line, json_text(json_get(m, "content"), "")), ST_OK);
        assert_int_equal(text_add(&line, "}"), ST_OK);
    }
    assert_int_equal(text_add(&line, "]}"), ST_OK);
    if (data_chat_encode(c, line.bytes, line.length, "case", 1, &s) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    const json *ids = json_get(want, "ids"), *mask = json_get(want, "loss_mask");
    assert_int_equal(s.ids.count, json_count(ids));
    for (int64_t i = 0; i < s.ids.count; i++) {
        assert_int_equal(s.ids.items[i], json_int(json_at(ids, i), -1));
        assert_int_equal(s.trained.items[i], json_int(json_at(mask, i), -1));
    }
    data_sample_deinit(&s);
}

static void check_reference(const char *name)
{
    static const char *const keys[] = {"template", "template_with_generation_marks"};
    char path[1024], name_of[256];
    const host *h = host_real();
    json *all = NULL;
    data_tokenizer *t = NULL;
    (void)snprintf(name_of, sizeof(name_of), "golden/post/%s/chat.json", name);
    (void)test_shared(name_of, path);
    assert_int_equal(json_read(h, path, 1 << 24, &all), ST_OK);
    (void)snprintf(name_of, sizeof(name_of), "golden/post/%s/tokenizer.json", name);
    (void)test_shared(name_of, path);
    assert_int_equal(data_tokenizer_open(h, memory, path, &t), ST_OK);
    text config = {.a = memory};
    assert_int_equal(text_add(&config, "{\"bos_token\": "), ST_OK);
    assert_int_equal(text_add_json(&config, json_text(json_get(all, "bos_token"), "")), ST_OK);
    assert_int_equal(text_add(&config, ", \"eos_token\": {\"content\": "), ST_OK);
    assert_int_equal(text_add_json(&config, json_text(json_get(all, "eos_token"), "")), ST_OK);
    assert_int_equal(text_add(&config, "}}"), ST_OK);
    (void)write_file("tokenizer_config.json", config.bytes);
    for (int k = 0; k < 2; k++) {
        (void)write_file("chat_template.jinja", json_text(json_get(all, keys[k]), ""));
        const data_chat_spec spec = {.folder = folder, .tokenizer = t};
        data_chat *c = open_chat(&spec);
        const json *list = json_get(all, "conversations");
        for (int64_t i = 0; i < json_count(list); i++) check_conversation(c, json_at(list, i));
        data_chat_close(c);
    }
    data_tokenizer_close(t);
    json_free(all);
}

static void test_references(void **state)
{
    (void)state;
    char path[1024];
    file_info info;
    const host *h = host_real();
    assert_int_equal(h->api->path_info(h, test_shared("golden/post", path), &info), ST_OK);
    if (info.kind == FILE_KIND_NONE) skip();
    check_reference("sft_llama_chatml");
    check_reference("sft_qwen2_headers");
}

static int set_up(void **state)
{
    (void)state;
    if (test_scratch(folder) == NULL || arena_create("test", 0, &memory) != ST_OK) return 1;
    return data_tokenizer_open(host_real(), memory, "bytes", &bytes_tokenizer) == ST_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    data_tokenizer_close(bytes_tokenizer);
    arena_destroy(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_a_turn_that_changes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_exclusion_of_pairs),
        cmocka_unit_test(test_exclusion_of_prompts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
