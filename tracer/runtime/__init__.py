"""What happens inside the runtime: its shims, runc, CNI plugins and other programs, joined to the call behind them."""
