/*
 * Shared by the modules: objects that own a handle of the library, waits that let Perl's signal
 * handlers run, arguments and results, and errors.
 *
 * No function of the library is on the stack while Perl code runs. So a handler or a FETCH may die,
 * and may destroy the object that the call is about.
 */
#ifndef PWPERL_H
#define PWPERL_H

#define PERL_NO_GET_CONTEXT
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"

#include <pipework.h>

/* Perl before 5.36 has it under its old name. */
#ifndef G_LIST
#define G_LIST G_ARRAY
#endif

/* ---------------------------------------------------------------- handle.c: objects */

/*
 * A class of objects that have something of C's behind them, which is called their state. It hangs
 * on the object as magic, where no Perl program can forge it.
 */
typedef struct pwp_class {
    MGVTBL vtable; /* PWP_VTABLE; must come first */
    /* As messages call it: "Pipework::Atomic". */
    const char *name;
    /* Frees a state. Runs no Perl code; the interpreter may be about to end. */
    void (*release)(pTHX_ void *state);
    /* The state for a new thread in the place of `state`: its own, or NULL for none. */
    void *(*share)(pTHX_ void *state);
} pwp_class;

extern int pwp_free_magic(pTHX_ SV *object, MAGIC *magic);
extern int pwp_dup_magic(pTHX_ MAGIC *magic, CLONE_PARAMS *param);
/* `local` makes another scalar. It gets no state: two owners would free one state twice. */
extern int pwp_local_magic(pTHX_ SV *fresh, MAGIC *magic);
#ifdef USE_ITHREADS
#define PWP_VTABLE {NULL, NULL, NULL, NULL, pwp_free_magic, NULL, pwp_dup_magic, pwp_local_magic}
#else
#define PWP_VTABLE {NULL, NULL, NULL, NULL, pwp_free_magic, NULL, NULL, pwp_local_magic}
#endif

/* Hangs `state` on `object`, the target of a reference. */
void pwp_attach(pTHX_ SV *object, const pwp_class *kind, void *state);

/* The state of the object; NULL if `self` is none of this class, or its state was taken. */
void *pwp_find(pTHX_ SV *self, const pwp_class *kind);

/* The state of the object. Croaks if `self` is none of this class, and if it was destroyed. */
void *pwp_state(pTHX_ SV *self, const pwp_class *kind);

/* Takes the state from the object, which counts as destroyed from then on; NULL if it was taken. */
void *pwp_take(pTHX_ SV *self, const pwp_class *kind);

/*
 * The name of a package of ours in messages: its own, or that of the original for which
 * Pipework::InsteadOf has put it.
 */
const char *pwp_called(pTHX_ const char *package);

/*
 * Another reference to the object, a mortal one that does not keep it alive: the value of `self` while
 * Perl code may run, which can free the one on the stack. Once the object is gone, pwp_state says
 * of this one, too, that it was destroyed. A value that is no reference is only kept alive.
 */
SV *pwp_pin(pTHX_ SV *self);

/* Keeps a value alive until the statement ends. */
SV *pwp_keep(pTHX_ SV *value);

/*
 * Keeps `items` values on the stack from `ax` on alive until the statement ends, if a look at one
 * of them may run Perl code: that could take another out of the array or hash that it is in, and
 * Perl's stack does not count its references to values. Call it before the first argument is fetched.
 */
void pwp_hold(pTHX_ I32 ax, I32 items);

/*
 * The object that a method is called on, of `items` values on the stack from `ax` on. If Perl code may run
 * when the others are fetched, they are held, and it is pinned. Otherwise it lasts until Perl code
 * runs, before which it is to be pinned; pwp_wait does so.
 */
SV *pwp_self(pTHX_ I32 ax, I32 items);

/*
 * Types of the first argument of an XSUB, which is looked at before the others: the object of a
 * method, as pwp_self gives it; and a class, with all arguments held.
 */
typedef SV *pwp_object;
typedef SV *pwp_held;

/* For DESTROY: takes the state and frees it. $! stays; an object of another class is left. */
void pwp_destroy(pTHX_ SV *self, const pwp_class *kind);

/* The class to bless into, whether a constructor was called on a class or on an object. */
HV *pwp_stash(pTHX_ SV *class_or_object);

/*
 * In a PPCODE section, before anything is pushed: Perl code has run since it began, which may have
 * moved the stack.
 */
#define PWP_SP_AGAIN SP = PL_stack_base + ax - 1

/* ---------------------------------------------------------------- wait.c: waits */

/*
 * One call of the library, which waits. It looks its handle up each time, because a signal handler may
 * have closed it since the last call. It loses nothing when it ends with PWK_INTERRUPTED.
 */
typedef pwk_status (*pwp_attempt)(pTHX_ void *arguments, pwk_deadline until, pwk_error *error);

/* Has the library ask whether a signal is pending. To be called once. */
void pwp_set_interrupt_hook(pTHX);

/*
 * Makes the call until it returns anything but PWK_INTERRUPTED. Signal handlers run in between; they
 * may die. The object that the call is about, if any, is pinned before the first of them
 * runs.
 */
pwk_status pwp_wait(pTHX_ SV **self, pwp_attempt attempt, void *arguments, pwk_deadline deadline,
                    pwk_error *error);

/*
 * The deadline for an argument, a number of seconds, which may have a fraction. NULL, undef,
 * negative numbers, NaN and infinity never come; 0 has passed.
 */
pwk_deadline pwp_deadline(pTHX_ SV *seconds);
/* The same in two steps: a number of seconds, negative for ever, and the deadline after them. */
NV pwp_seconds(pTHX_ SV *seconds);
pwk_deadline pwp_deadline_in(NV seconds);

/* ---------------------------------------------------------------- arguments.c: arguments, results */

/*
 * An argument to take bytes from, fetched: get-magic and overloading have run, once. Arguments are
 * fetched in their order, each once, and the handle is looked up when all of them are.
 */
SV *pwp_fetch(pTHX_ SV *argument);

/*
 * An argument to take a number from, fetched; undef stays undef. Anything but a number is a copy:
 * Perl warns of a text, and the warning's handler may take away the caller's.
 */
SV *pwp_number(pTHX_ SV *argument);

/*
 * The integer that an argument is, fetched or not. Numbers that are too large or too small, also
 * infinite ones, become the largest or the smallest integer; NaN is 0.
 */
IV pwp_integer(pTHX_ SV *argument);

/* The same for one that has no sign: a negative one is very large, as in Perl. */
UV pwp_count(pTHX_ SV *argument);

/* The same, with its fraction. */
NV pwp_real(pTHX_ SV *argument);

/* Croaks if the memory does not suffice for a string of `len` bytes. Perl would end the process. */
void pwp_must_fit(pTHX_ size_t len);

/* Bytes that were received, as a mortal. Croaks if the memory does not suffice. */
SV *pwp_string(pTHX_ const void *data, size_t len);

/*
 * The bytes of an argument that was fetched, lent until Perl code runs. Croaks "Wide character in
 * NAME" at characters over 255.
 */
pwk_bytes pwp_bytes(pTHX_ SV *fetched, const char *name);

/* Croaks unless something can be assigned to `output`. To be called before anything is done. */
void pwp_must_be_writable(pTHX_ SV *output);

/* Assigns bytes, and runs set-magic. */
void pwp_assign(pTHX_ SV *output, const void *data, size_t len);

/* A path, as bytes with a NUL behind. Croaks if it contains one. */
const char *pwp_path(pTHX_ SV *fetched, const char *name);

/* A name that a function knows, and its value on the stack, not fetched; NULL until it is given. */
typedef struct pwp_named {
    const char *name;
    SV *value;
} pwp_named;

/*
 * Takes names and values from the stack, from number `first` on. Croaks of a name that is not known
 * with those that are. To be called when the arguments are held.
 */
void pwp_take_named(pTHX_ CV *cv, I32 ax, I32 first, I32 items, pwp_named *known, size_t count);

/* The time at the end of a call: seconds alone, or `timeout => seconds`; NULL if none is given. */
SV *pwp_timeout(pTHX_ CV *cv, I32 ax, I32 first, I32 items);
#define PWP_TIMEOUT(first) pwp_timeout(aTHX_ cv, ax, first, items)

/* Put results where an XSUB returns them, and say how many they are. */
I32 pwp_give(pTHX_ I32 ax, SV *value);
I32 pwp_give_two(pTHX_ I32 ax, SV *first, SV *second);

/* Return one result from an XSUB: a value, a number, a number or undef. */
#define PWP_GIVE(value) XSRETURN(pwp_give(aTHX_ ax, value))
#define PWP_GIVE_NUMBER(number) PWP_GIVE(sv_2mortal(newSVuv(number)))
#define PWP_GIVE_IF(condition, number) \
    PWP_GIVE((condition) ? sv_2mortal(newSVuv(number)) : &PL_sv_undef)

/* ---------------------------------------------------------------- error.c: errors */

/* Remembers the failure for Pipework::error(), and sets $!. */
void pwp_failed(pTHX_ const pwk_error *error);

/* Remembers the failure, too, and makes a Pipework::Error of it: a mortal reference to a hash. */
SV *pwp_exception(pTHX_ const pwk_error *error);

/* As pwp_failed, with bytes in which the other side said why it gave up; there may be none. */
void pwp_failed_because(pTHX_ const pwk_error *error, const void *reason, size_t len);

/* Dies with a Pipework::Error. */
void pwp_throw(pTHX_ const pwk_error *error) __attribute__((noreturn));

/* As pwp_throw, with the reason of the other side. */
void pwp_throw_because(pTHX_ const pwk_error *error, const void *reason, size_t len)
    __attribute__((noreturn));

/* Why the other side gave up, as a mortal: text if it is UTF-8. NULL if it did not say. */
SV *pwp_last_reason(pTHX);

/* The last failure: a number, the pwk_status, that is also a text. */
SV *pwp_last_error(pTHX);

/* The text of an error, as a mortal. */
SV *pwp_error_text(pTHX_ const pwk_error *error);

/* ---------------------------------------------------------------- Pipework.xs: interpreters */

/* The state of each interpreter. */
typedef struct pwp_context {
    /* The last failure; its kind is PWK_OK before the first. */
    pwk_error last;
    /* Why the other side gave up, if it said so with the last failure. */
    pwk_buffer reason;
    /* A handle is being freed, which writes pending messages: no signal may end that. */
    bool is_freeing;
    /* For received bytes, which last until Perl code runs. */
    pwk_buffer scratch;
} pwp_context;

pwp_context *pwp_get_context(pTHX);

#endif
