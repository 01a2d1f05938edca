/*
 * A publisher and two subscribers. One must see every message; the other may lag, and learns how many
 * messages it has missed.
 */
#include <pipework.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const pwk_error *error) {
    char text[256];
    pwk_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Receives prices up to an empty message. The publisher waits for this one while the ring is full. */
static int record(pwk_subscriber *subscriber) {
    pwk_error error;
    pwk_received message;
    int prices = 0;
    for (;;) {
        pwk_status status = pwk_subscriber_recv(subscriber, pwk_in_ms(5000), &message, &error);
        if (status != PWK_OK) return fail(&error);
        if (message.bytes.len == 0) break;
        prices++;
    }
    printf("recorded %d prices\n", prices);
    fflush(stdout);
    return prices != 1000;
}

/* Looks only now and then. The publisher never waits for it. */
static int display(pwk_subscriber *subscriber) {
    pwk_error error;
    pwk_received message;
    uint64_t shown = 0, missed = 0;
    usleep(20000);
    for (;;) {
        pwk_status status = pwk_subscriber_recv(subscriber, pwk_in_ms(5000), &message, &error);
        if (status == PWK_LAGGED) {
            missed += error.done; /* reported once; the next call goes on with the oldest message */
            continue;
        }
        if (status != PWK_OK) return fail(&error);
        if (message.bytes.len == 0) break;
        shown++;
    }
    printf("showed %d prices and missed the others\n", (int)shown);
    fflush(stdout);
    return shown + missed != 1000;
}

int main(void) {
    pwk_error error;
    pwk_broadcast *broadcast = NULL;
    pwk_publisher *publisher = NULL;
    pwk_subscriber *subscribers[2] = {NULL, NULL};
    pwk_broadcast_options options;
    pwk_subscriber_options all;
    char price[32];
    pwk_broadcast_options_init(&options, sizeof options);
    options.messages = 64;
    if (pwk_broadcast_anonymous(&options, &broadcast, &error) != PWK_OK) return fail(&error);
    pwk_subscriber_options_init(&all, sizeof all);
    all.must_see_all = true;

    /* Each child subscribes, and then says so. */
    int ready[2], failed = 0;
    if (pipe(ready) != 0) return 1;
    for (int i = 0; i < 2; i++) {
        if (fork() != 0) continue;
        pwk_status status = pwk_subscriber_new(broadcast, i == 0 ? &all : NULL, &subscribers[i], &error);
        if (status != PWK_OK || write(ready[1], "x", 1) != 1) _exit(fail(&error));
        failed = i == 0 ? record(subscribers[i]) : display(subscribers[i]);
        pwk_subscriber_free(subscribers[i]);
        _exit(failed);
    }
    close(ready[1]);
    for (int i = 0; i < 2; i++) {
        if (read(ready[0], price, 1) != 1) return 1;
    }

    if (pwk_publisher_new(broadcast, NULL, &publisher, &error) != PWK_OK) return fail(&error);
    for (int i = 1; i <= 1000; i++) {
        size_t len = (size_t)snprintf(price, sizeof price, "%d.%02d", i / 100, i % 100);
        if (pwk_publisher_publish(publisher, price, len, pwk_in_ms(5000), &error) != PWK_OK) {
            return fail(&error); /* if it timed out: also for which process it has waited */
        }
    }
    if (pwk_publisher_publish(publisher, NULL, 0, pwk_in_ms(5000), &error) != PWK_OK) return fail(&error);

    for (int status; wait(&status) > 0;) failed |= status != 0;
    pwk_publisher_free(publisher);
    pwk_broadcast_free(broadcast);
    return failed;
}
