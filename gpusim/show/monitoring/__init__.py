"""What Prometheus and Grafana are given: text of samples, rules, a dashboard, and the set-up that holds them together."""
