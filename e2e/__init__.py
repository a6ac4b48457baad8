"""The programs as processes, against a simulated cluster and a real Prometheus, or against a cluster by KUBECONFIG."""
