"""OpenAI's graders: what an answer is worth, by a declaration. Pure; never code of tenants.

    grader       the declarations, and `parse`, which refuses what is wrong with one
    templates    `{{item.…}}` and `{{sample.…}}` in texts of graders
    similarity   how alike two texts are: fuzzy match, BLEU, GLEU, ROUGE
    formula      `calculate_output` of a multi grader: arithmetic and nothing else
    model_scores what a model that scores is asked, and what its answer is worth
    pair_questions  what a judge of two answers is asked; the labelled pairs that qualify it
    grading      `grade`: the reward of one sample

Time and memory of a grade are bounded: texts, formulas, paths and nesting have limits here.
"""
