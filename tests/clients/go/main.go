// Command franz is franz-go as a client program: it produces the lines of a file, or consumes as a group member.
//
// An input line is "key:value". Output is one line "partition offset value" per record until SIGTERM; then the member
// leaves its group, everything written having been committed. Any error ends the program with status 1.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

type options struct {
	bootstrap, topic, codec, acks, input, group string
	idempotent                                  bool
}

func produce(o options) error {
	codec, known := codecs[o.codec]
	required, valid := acks[o.acks]
	if !known || !valid {
		return fmt.Errorf("-codec %q or -acks %q is not known", o.codec, o.acks)
	}
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.DefaultProduceTopic(o.topic),
		kgo.ProducerBatchCompression(codec),
		kgo.RequiredAcks(required),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !o.idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return err
	}
	defer client.Close()
	data, err := os.ReadFile(o.input)
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for _, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		records = append(records, &kgo.Record{Key: key, Value: value})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return client.ProduceSync(ctx, records...).FirstErr()
}

// consume commits after each poll; rebalances wait until then.
func consume(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.ConsumerGroup(o.group),
		kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.SessionTimeout(10*time.Second),
		kgo.Balancers(kgo.RoundRobinBalancer()),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	out := bufio.NewWriter(os.Stdout)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				fmt.Fprintf(os.Stderr, "partition %d: %v\n", failed.Partition, failed.Err)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Fprintf(out, "%d %d %s\n", record.Partition, record.Offset, record.Value)
		})
		if err := out.Flush(); err != nil {
			return err
		}
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				return err
			}
		}
		client.AllowRebalance()
	}
	return nil
}

func main() {
	var o options
	flag.StringVar(&o.bootstrap, "bootstrap", "", "host:port")
	flag.StringVar(&o.topic, "topic", "", "topic")
	flag.StringVar(&o.codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	flag.StringVar(&o.acks, "acks", "all", "0, 1 or all")
	flag.BoolVar(&o.idempotent, "idempotent", false, "with a producer id")
	flag.StringVar(&o.input, "input", "", "file of key:value lines")
	flag.StringVar(&o.group, "group", "", "group id")
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: franz produce|consume [flags]")
		os.Exit(2)
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		os.Exit(2)
	}
	run := map[string]func(options) error{"produce": produce, "consume": consume}[os.Args[1]]
	if run == nil {
		fmt.Fprintf(os.Stderr, "%q is neither produce nor consume\n", os.Args[1])
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
