/*
 * Prints the items that a reader decodes from a file, one on each line, and how they end: for
 * reads of every size the same.
 *
 *   vectors_atomic FILE MIXED STRICT MAX_MESSAGE COMPRESS ACCEPT_UNCHECKED DICTIONARY
 *
 * A 0 means no, and not given.
 */
#include "../check.h"

#include <fcntl.h>

static char bytes[65536], dictionary[65536];

static size_t read_whole(const char *path, char *into, size_t space) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t len = read(fd, into, space);
    CHECK(len >= 0 && read(fd, into, 1) == 0);
    close(fd);
    return (size_t)len;
}

static void print_item(const pwk_item *item) {
    const unsigned char *data = item->data;
    printf("%d %d:%d %d %d:%d:%zu ", (int)item->kind, item->writer.pid, item->writer.tid,
           (int)item->parts, item->torn, (int)item->limit, item->torn_bytes);
    for (size_t i = 0; i < item->len; i++) printf("%02x", data[i]);
    printf("\n");
}

static void play(const pwk_atomic_options *options, size_t len) {
    pwk_atomic_reader *reader = NULL;
    pwk_atomic_writer *writer = NULL;
    pwk_item item;
    pwk_status status;
    OK(pwk_atomic_pair(options, &reader, &writer, &error));
    CHECK(write(pwk_atomic_writer_fd(writer), bytes, len) == (ssize_t)len);
    pwk_atomic_writer_free(writer);
    while ((status = pwk_atomic_reader_next_item(reader, SOON, &item, &error)) == PWK_OK) {
        print_item(&item);
    }
    printf("%d\n", status);
    pwk_atomic_reader_free(reader);
}

int main(int argc, char **argv) {
    CHECK(argc == 8);
    pwk_atomic_options options;
    pwk_atomic_options_init(&options, sizeof options);
    size_t len = read_whole(argv[1], bytes, sizeof bytes);
    options.mixed = atoi(argv[2]) != 0;
    options.strict = atoi(argv[3]) != 0;
    if (atoi(argv[4]) != 0) options.max_message = (size_t)atoi(argv[4]);
    options.compress = atoi(argv[5]) != 0;
    options.accept_unchecked = atoi(argv[6]) != 0;
    if (strcmp(argv[7], "0") != 0) {
        options.dictionary.data = dictionary;
        options.dictionary.len = read_whole(argv[7], dictionary, sizeof dictionary);
    }
    const size_t sizes[] = {65536, 4096, 17, 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        options.read_size = sizes[i];
        play(&options, len);
    }
    return 0;
}
