// Answers of a service: good ones in every cut, and hostile ones.
#include "train/reward/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OK "HTTP/1.1 200 OK\r\n"

static const struct {
    const char *text;
    double reward;
    bool to_the_end; // only the end of the connection ends it
} good[] = {
    {OK "Content-Length: 3\r\n\r\n0.5", 0.5, false},
    {OK "content-length:  2 \r\nX: y\r\n\r\n-1", -1.0, false},
    {"HTTP/1.0 200 \n\n{\"reward\": 2e1}", 20.0, true},
    {OK "\r\n 7 ", 7.0, true},
    {OK "Transfer-Encoding: chunked\r\n\r\n1;x=y\r\n1\r\n2\r\n.5\r\n0\r\n\r\n", 1.5, false},
    {OK "Content-Length: 13\r\n\r\n{\"reward\": 0}and more", 0.0, false},
};

// Each prefix is either not whole yet or the answer itself.
static void good_answers_are_read(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(good); i++) {
        const int64_t count = (int64_t)strlen(good[i].text);
        reward_answer a;
        for (int64_t n = 0; n < count; n++) {
            if (reward_answer_read(good[i].text, n, false, &a) != ST_OK)
                fail_msg("%d at %d", i, (int)n);
            if (a.is_whole) assert_true(a.code == 200 && a.reward == good[i].reward);
        }
        assert_int_equal(reward_answer_read(good[i].text, count, false, &a), ST_OK);
        assert_int_equal(a.is_whole, !good[i].to_the_end);
        assert_int_equal(reward_answer_read(good[i].text, count, true, &a), ST_OK);
        assert_true(a.is_whole && a.code == 200 && a.reward == good[i].reward);
    }
}

static const char *const hostile[] = {
    "",
    "\r\n",
    "HTTP",
    "HTTP/1.1 2",
    "HTTP/1.1 2x0 OK\r\n\r\n1",
    "HTTP/2 200\r\n\r\n1",
    "ICY 200 OK\r\n\r\n1",
    OK,
    OK "\r\n",
    OK "Content-Length: 5\r\n\r\n1",
    OK "Content-Length: -1\r\n\r\n1",
    OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\n11",
    OK "Content-Length: 70000\r\n\r\n1",
    OK "Content-Length: 184467440737095516161\r\n\r\n1",
    OK "Content-Length: \r\n\r\n1",
    OK "Transfer-Encoding: gzip\r\n\r\n1",
    OK "Transfer-Encoding: chunked\r\n\r\n1\r\n1",
    OK "Transfer-Encoding: chunked\r\n\r\n-1\r\n1\r\n0\r\n\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n1\r\n0\r\n\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\n1\r\n11\r\n0\r\n\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    OK "\r\n\"1\"",
    OK "\r\n{}",
    OK "\r\n{\"reward\": \"1\"}",
    OK "\r\n{\"reward\": null}",
    OK "\r\nNaN",
    OK "\r\n1e999",
    OK "\r\n1 2",
    OK "\r\n[1]",
    OK "\r\ntrue",
};

static void hostile_answers_are_refused(void **state)
{
    (void)state;
    reward_answer a;
    for (int i = 0; i < COUNT_OF(hostile); i++) {
        const status st = reward_answer_read(hostile[i], (int64_t)strlen(hostile[i]), true, &a);
        if (st == ST_OK) fail_msg("\"%s\" was taken", hostile[i]);
        error_clear();
    }
    static char many[REWARD_ANSWER_BYTES + 1];
    memset(many, 'a', sizeof(many));
    assert_int_equal(reward_answer_read(many, sizeof(many), false, &a), ST_DATA);
    assert_int_equal(reward_answer_read(many, sizeof(many) - 1, false, &a), ST_OK);
    assert_false(a.is_whole);
    error_clear();
}

static void other_codes_need_no_body(void **state)
{
    (void)state;
    reward_answer a;
    const char *text = "HTTP/1.1 429 Slowly\r\nContent-Length: 0\r\n\r\n";
    assert_int_equal(reward_answer_read(text, (int64_t)strlen(text), false, &a), ST_OK);
    assert_true(a.is_whole && a.code == 429);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_answers_are_read),
        cmocka_unit_test(hostile_answers_are_refused),
        cmocka_unit_test(other_codes_need_no_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
