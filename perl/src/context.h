/* What each interpreter has of its own. */
#ifndef PWP_CONTEXT_H
#define PWP_CONTEXT_H

typedef struct pwp_context {
    /* The last failure; its kind is PWK_OK before the first. */
    pwk_error last;
    /* Why the other side gave up, if it said so with the last failure. */
    pwk_buffer reason;
    /* A handle is being freed, which writes what is pending: no signal is to end that. */
    bool is_freeing;
    /* For what is received; its bytes last until Perl code runs. */
    pwk_buffer scratch;
} pwp_context;

/* In Pipework.xs, where Perl's macros for it belong. */
pwp_context *pwp_get_context(pTHX);

#endif
