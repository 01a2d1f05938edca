/* What all rooms share: statuses, errors, deadlines, buffers. */
#include "check.h"

static void the_library_is_the_one_it_was_compiled_for(void) {
    CHECK(pw_abi() == PW_ABI);
    CHECK(strncmp(pw_version(), "0.1.", 4) == 0);
}

static void every_status_has_words_and_an_errno(void) {
    for (pw_status status = PW_WOULD_BLOCK; status <= PW_FAILED; status++) {
        CHECK(strlen(pw_status_text(status)) > 5 && pw_status_errno(status) > 0);
    }
    CHECK(strcmp(pw_status_text(PW_TIMED_OUT), "the deadline has passed") == 0);
    CHECK(pw_status_errno(PW_TIMED_OUT) == ETIMEDOUT && pw_status_errno(PW_FAILED) == ECANCELED);
    CHECK(strcmp(pw_status_text(PW_OK), "no error") == 0 && pw_status_errno(PW_OK) == 0);
    CHECK(strlen(pw_status_text(PW_BUG)) > 5 && pw_status_errno(PW_BUG) == EIO);
    const pw_status others[] = {-1, 16, 254, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK(strcmp(pw_status_text(others[i]), "unknown status") == 0);
        CHECK(pw_status_errno(others[i]) == 0);
    }
}

static void an_error_is_written_as_snprintf_writes(void) {
    pw_error made = {PW_OS, ENOENT, 0, "reqrep open"};
    const char *line = "reqrep open: refused by the system: No such file or directory (os error 2)";
    char text[256];
    CHECK(pw_error_text(&made, text, sizeof text) == strlen(line) && strcmp(text, line) == 0);
    CHECK(pw_error_text(&made, text, 7) == strlen(line) && strcmp(text, "reqrep") == 0);
    CHECK(pw_error_text(&made, text, 1) == strlen(line) && text[0] == 0);
    CHECK(pw_error_text(&made, NULL, 0) == strlen(line));
    CHECK(pw_error_text(&made, NULL, 9) == strlen(line));
    made.done = 4096;
    CHECK(pw_error_text(&made, text, sizeof text) == strlen(line) + strlen("; 4096 done"));
    CHECK(pw_error_text(NULL, text, sizeof text) == 0 && text[0] == 0);
    /* One that a program did not end. */
    memset(&made, 'x', sizeof made);
    CHECK(pw_error_text(&made, text, sizeof text) > 0);
    made.kind = PW_BUG;
    CHECK(pw_error_text(&made, text, sizeof text) > 48);
    made.kind = PW_OK;
    CHECK(pw_error_text(&made, text, sizeof text) > 0);
}

static void a_deadline_is_a_time_that_passes(void) {
    pw_deadline soon = pw_in_ms(60000);
    CHECK(pw_left_ns(soon) > 50000000000 && pw_left_ns(soon) <= 60000000000);
    CHECK(pw_left_ns(pw_in_ns(1000000000)) <= 1000000000);
    CHECK(pw_in_ns(INT64_MAX) == PW_NEVER && pw_in_ms(INT64_MAX) == PW_NEVER);
    CHECK(pw_left_ns(PW_NEVER) == INT64_MAX);
    CHECK(pw_left_ns(pw_in_ms(-1)) == 0 && pw_left_ns(0) == 0 && pw_left_ns(INT64_MIN) == 0);
}

static void a_buffer_grows_and_is_given_back(void) {
    pw_buffer buffer = PW_BUFFER;
    OK(pw_buffer_reserve(&buffer, 1000, &error));
    CHECK(buffer.data != NULL && buffer.len == 0 && buffer.capacity >= 1000);
    void *there = buffer.data;
    OK(pw_buffer_reserve(&buffer, 10, &error));
    CHECK(buffer.data == there);
    pw_buffer_free(&buffer);
    CHECK(buffer.data == NULL && buffer.len == 0 && buffer.capacity == 0);
    pw_buffer_free(&buffer);
    pw_buffer_free(NULL);
    GIVES(PW_INVALID, pw_buffer_reserve(NULL, 1, &error));
    NAMES(pw_buffer_reserve);
    GIVES(PW_OS, pw_buffer_reserve(&buffer, SIZE_MAX, &error));
    CHECK(error.os == ENOMEM);
    buffer.len = 1; /* no library of ours did that */
    GIVES(PW_INVALID, pw_buffer_reserve(&buffer, 1, &error));
    pw_buffer_free(&buffer);
}

static void errno_is_left_as_it_was(void) {
    pw_buffer buffer = PW_BUFFER;
    pw_segment *segment = NULL;
    errno = 77;
    OK(pw_buffer_reserve(&buffer, 1000, &error));
    GIVES(PW_OS, pw_buffer_reserve(&buffer, SIZE_MAX, &error));
    pw_buffer_free(&buffer);
    GIVES(PW_OS, pw_reqrep_open("/nowhere/at/all", NULL, &segment, &error));
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
