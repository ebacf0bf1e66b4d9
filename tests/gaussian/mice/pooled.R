# Completed tables of simulated patients, and what mice makes of three regressions on them.
# Rscript tests/gaussian/mice/pooled.R writes the three tables beside this file. Needs mice and survival.
suppressMessages({library(mice); library(survival)})

here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
written <- function(table, name) write.csv(table, file.path(here, name), row.names = FALSE)

set.seed(1)
n <- 60
age <- rnorm(n); dose <- 0.5 * age + rnorm(n); treated <- rbinom(n, 1, 0.5)
y <- 1 + 0.8 * age - 0.5 * dose + treated + rnorm(n)
ill <- rbinom(n, 1, plogis(0.7 * age + 0.5 * treated))
time <- rexp(n, exp(0.6 * age - 0.4 * treated))
event <- rbinom(n, 1, 0.7)
d <- data.frame(age, dose, treated, y, ill, time, event)
for (column in c("age", "dose", "y")) d[runif(n) < 0.18, column] <- NA

imp <- mice(d, m = 5, maxit = 10, method = "norm", seed = 2, printFlag = FALSE)
tables <- complete(imp, "long")[, c(".imp", names(d))]
names(tables)[1] <- "table"
for (column in c("age", "dose", "y", "time")) tables[[column]] <- signif(tables[[column]], 6)
written(tables, "tables.csv")

# fits to the rounded numbers
fits <- function(fit) as.mira(lapply(split(tables, tables$table), fit))
models <- list(
  linear = fits(function(t) lm(y ~ age + dose + treated, t)),
  logistic = fits(function(t) glm(ill ~ age + dose + treated, binomial, t, epsilon = 1e-14)),
  cox = fits(function(t) coxph(Surv(time, event) ~ age + dose + treated, t, eps = 1e-11))
)
smaller <- list(
  linear = fits(function(t) lm(y ~ treated, t)),
  logistic = fits(function(t) glm(ill ~ treated, binomial, t, epsilon = 1e-14)),
  cox = fits(function(t) coxph(Surv(time, event) ~ treated, t, eps = 1e-11))
)

terms <- do.call(rbind, lapply(names(models), function(name) {
  found <- pool(models[[name]])
  all <- summary(found, conf.int = TRUE)
  data.frame(
    model = name, term = as.character(all$term), estimate = all$estimate,
    std = all$std.error, dof = all$df, p_value = all$p.value, low = all[["2.5 %"]],
    high = all[["97.5 %"]], missing_information = found$pooled$fmi,
    complete_dof = found$pooled$dfcom
  )
}))
options(digits = 15)
written(terms, "terms.csv")

several <- function(name, method, test) {
  r <- test(models[[name]], smaller[[name]])$result
  data.frame(model = name, method = method, statistic = r[1], df = r[2], dof = r[3],
             p_value = r[4], added = r[5])
}
written(rbind(
  several("linear", "D1", D1), several("logistic", "D1", D1), several("cox", "D1", D1),
  several("linear", "D3", D3), several("logistic", "D3", D3)
), "tests.csv")
