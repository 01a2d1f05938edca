/* Shared by all modules: statuses, errors, deadlines, buffers. */
#include "check.h"

static void the_library_is_the_one_it_was_compiled_for(void) {
    CHECK(pwk_abi() == PWK_ABI);
    CHECK(strncmp(pwk_version(), "0.1.", 4) == 0);
}

static void every_status_has_words_and_an_errno(void) {
    for (pwk_status status = PWK_WOULD_BLOCK; status <= PWK_LAGGED; status++) {
        CHECK(strlen(pwk_status_text(status)) > 5 && pwk_status_errno(status) > 0);
    }
    CHECK(strcmp(pwk_status_text(PWK_TIMED_OUT), "the deadline has passed") == 0);
    CHECK(pwk_status_errno(PWK_TIMED_OUT) == ETIMEDOUT && pwk_status_errno(PWK_FAILED) == ECANCELED);
    CHECK(strcmp(pwk_status_text(PWK_OK), "no error") == 0 && pwk_status_errno(PWK_OK) == 0);
    CHECK(strlen(pwk_status_text(PWK_BUG)) > 5 && pwk_status_errno(PWK_BUG) == EIO);
    const pwk_status others[] = {-1, 17, 254, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK(strcmp(pwk_status_text(others[i]), "unknown status") == 0);
        CHECK(pwk_status_errno(others[i]) == 0);
    }
}

static void an_error_is_written_as_snprintf_writes(void) {
    pwk_error made = {PWK_OS, ENOENT, 0, "reqrep open"};
    const char *line = "reqrep open: the system call failed: No such file or directory (os error 2)";
    char text[256];
    CHECK(pwk_error_text(&made, text, sizeof text) == strlen(line) && strcmp(text, line) == 0);
    CHECK(pwk_error_text(&made, text, 7) == strlen(line) && strcmp(text, "reqrep") == 0);
    CHECK(pwk_error_text(&made, text, 1) == strlen(line) && text[0] == 0);
    CHECK(pwk_error_text(&made, NULL, 0) == strlen(line));
    CHECK(pwk_error_text(&made, NULL, 9) == strlen(line));
    made.done = 4096;
    CHECK(pwk_error_text(&made, text, sizeof text) == strlen(line) + strlen("; 4096 done"));
    pwk_error lagged = {PWK_LAGGED, 0, 3, "broadcast recv"};
    CHECK(pwk_error_text(&lagged, text, sizeof text) > 0);
    CHECK(strcmp(text, "broadcast recv: messages were missed; 3 missed") == 0);
    CHECK(pwk_error_process(&lagged) == 0 && pwk_error_process(&made) == 0 && pwk_error_process(NULL) == 0);
    CHECK(pwk_error_text(NULL, text, sizeof text) == 0 && text[0] == 0);
    /* One that a program did not end. */
    memset(&made, 'x', sizeof made);
    CHECK(pwk_error_text(&made, text, sizeof text) > 0);
    made.kind = PWK_BUG;
    CHECK(pwk_error_text(&made, text, sizeof text) > 48);
    made.kind = PWK_OK;
    CHECK(pwk_error_text(&made, text, sizeof text) > 0);
}

static void a_deadline_is_a_time_that_passes(void) {
    pwk_deadline soon = pwk_in_ms(60000);
    CHECK(pwk_left_ns(soon) > 50000000000 && pwk_left_ns(soon) <= 60000000000);
    CHECK(pwk_left_ns(pwk_in_ns(1000000000)) <= 1000000000);
    CHECK(pwk_in_ns(INT64_MAX) == PWK_NEVER && pwk_in_ms(INT64_MAX) == PWK_NEVER);
    CHECK(pwk_left_ns(PWK_NEVER) == INT64_MAX);
    CHECK(pwk_left_ns(pwk_in_ms(-1)) == 0 && pwk_left_ns(0) == 0 && pwk_left_ns(INT64_MIN) == 0);
}

static void a_buffer_grows_and_is_given_back(void) {
    pwk_buffer buffer = PWK_BUFFER;
    OK(pwk_buffer_reserve(&buffer, 1000, &error));
    CHECK(buffer.data != NULL && buffer.len == 0 && buffer.capacity >= 1000);
    void *there = buffer.data;
    OK(pwk_buffer_reserve(&buffer, 10, &error));
    CHECK(buffer.data == there);
    pwk_buffer_free(&buffer);
    CHECK(buffer.data == NULL && buffer.len == 0 && buffer.capacity == 0);
    pwk_buffer_free(&buffer);
    pwk_buffer_free(NULL);
    GIVES(PWK_INVALID, pwk_buffer_reserve(NULL, 1, &error));
    NAMES(pwk_buffer_reserve);
    GIVES(PWK_OS, pwk_buffer_reserve(&buffer, SIZE_MAX, &error));
    CHECK(error.os == ENOMEM);
    buffer.len = 1; /* no library of ours did that */
    GIVES(PWK_INVALID, pwk_buffer_reserve(&buffer, 1, &error));
    pwk_buffer_free(&buffer);
}

static void errno_is_left_as_it_was(void) {
    pwk_buffer buffer = PWK_BUFFER;
    pwk_segment *segment = NULL;
    errno = 77;
    OK(pwk_buffer_reserve(&buffer, 1000, &error));
    GIVES(PWK_OS, pwk_buffer_reserve(&buffer, SIZE_MAX, &error));
    pwk_buffer_free(&buffer);
    GIVES(PWK_OS, pwk_segment_open("/nowhere/at/all", NULL, &segment, &error));
    CHECK(errno == 77 && error.os == ENOENT && segment == NULL);
}

static const struct test tests[] = {
    TEST(the_library_is_the_one_it_was_compiled_for),
    TEST(every_status_has_words_and_an_errno),
    TEST(an_error_is_written_as_snprintf_writes),
    TEST(a_deadline_is_a_time_that_passes),
    TEST(a_buffer_grows_and_is_given_back),
    TEST(errno_is_left_as_it_was),
};
MAIN(tests)
